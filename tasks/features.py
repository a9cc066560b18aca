"""A map of what a run's models make of images: their representations in two dimensions."""

from typing import Any

import pandas as pd
import torch
from sklearn.manifold import TSNE

from fedcore.data.shards import Shard
from fedcore.engine import Report
from fedcore.method import Method

CLIENTS = 2
FEWEST = 4


@torch.no_grad()
def embedded(method: Method[Any, Any], end: Report, shards: list[Shard], count: int) -> pd.DataFrame:
    """t-SNE of z of at most `count` test images of each of the first two clients, all in one embedding.

    Every client's images pass through the model that it predicts with: FedProc's Figure 2 for personal models and
    for one global model alike. Columns client, label, x, y; no row where there are next to no images.
    """
    found = [_represented(method, end, shard, count) for shard in shards[:CLIENTS]]
    z = torch.cat([z for z, _ in found])
    table = pd.concat([rows for _, rows in found], ignore_index=True)
    if len(table) < FEWEST:
        return table.iloc[:0].assign(x=0.0, y=0.0)
    perplexity = min(30.0, (len(table) - 1) / 3)
    plane = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(z.numpy())
    return table.assign(x=plane[:, 0], y=plane[:, 1])


def _represented(method: Method[Any, Any], end: Report, shard: Shard, count: int) -> tuple[torch.Tensor, pd.DataFrame]:
    state = end.clients[shard.client] if shard.client in end.clients else method.init_client(end.server)
    model = method.model(end.server, state, shard)
    rows = torch.linspace(0, len(shard.test) - 1, min(count, len(shard.test))).long()  # sources may be sorted by class
    z = method.task.represent(model, shard.test.images(rows)).z
    return z, pd.DataFrame({"client": shard.client, "label": shard.test.labels(rows).numpy()})
