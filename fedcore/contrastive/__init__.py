"""Contrastive pre-training of encoders on images without labels."""

from fedcore.contrastive.byol import BYOL
from fedcore.contrastive.simclr import SimCLR
from fedcore.contrastive.simsiam import SimSiam
from fedcore.contrastive.spec import Contrastive, EncoderSpec, Random

ALGORITHMS: dict[str, type[EncoderSpec]] = {cls.algorithm: cls for cls in (Random, SimCLR, BYOL, SimSiam)}
"""Encoder nodes by the name of their algorithm."""

__all__ = ["ALGORITHMS", "Contrastive", "EncoderSpec", "Random"]
