"""Every way to divide a dataset, by the name that a partition node says under `scheme`."""

from fedcore.data.partition import Classes, Dirichlet, Groups, Iid, Quantity, Scheme, Shards
from fedcore.data.semi import SemiDirichlet, SemiIid, SemiMismatch, SemiMixture

SCHEMES: dict[str, type[Scheme]] = {
    cls.scheme: cls
    for cls in (Iid, Dirichlet, Classes, Shards, Quantity, Groups, SemiIid, SemiDirichlet, SemiMixture, SemiMismatch)
}
