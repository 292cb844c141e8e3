"""Queries with graded documents, for learning to rank."""

from dataclasses import dataclass

import torch
from sklearn.datasets import load_diabetes, load_svmlight_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from softly_lab.data import folder, readable


@dataclass(frozen=True)
class Queries:
    """Lists of unequal length, padded with zeros at their end.

    Attributes:
        features: (queries, longest, columns)
        grades: (queries, longest) From 0, not relevant.
        lengths: (queries,)
    """

    features: Tensor
    grades: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Tensor) -> "Queries":
        return Queries(self.features[index], self.grades[index], self.lengths[index])


def _queries(features: Tensor, grades: Tensor, lengths: list[int]) -> Queries:
    def padded(rows: Tensor) -> Tensor:
        return pad_sequence(list(rows.split(lengths)), batch_first=True)

    return Queries(padded(features), padded(grades), torch.tensor(lengths))


def lightgbm() -> tuple[Queries, Queries]:
    """LightGBM's example: 201 queries to learn from and 50 to test on, grades 0 to 4, 301 columns."""
    path, parts = folder("ltr-lightgbm"), []
    for part in ("train", "test"):
        with readable(path / f"rank.{part}.query"):
            lengths = [int(line) for line in (path / f"rank.{part}.query").read_text().split()]
        with readable(path / f"rank.{part}.gz"):
            features, grades = load_svmlight_file(str(path / f"rank.{part}.gz"), n_features=301, zero_based=True)
        if sum(lengths) != len(grades):
            raise ValueError(f"{path.name}: rank.{part}.query tells of {sum(lengths)} rows, there are {len(grades)}.")
        rows = torch.tensor(features.toarray(), dtype=torch.float32)
        parts.append(_queries(rows, torch.tensor(grades, dtype=torch.int64), lengths))
    return parts[0], parts[1]


def diabetes() -> tuple[Queries, Queries]:
    """Scikit-learn's 442 patients in random groups of 4 to 16, graded 0 to 4 by how far their disease went on."""
    rows, progress = load_diabetes(return_X_y=True)
    generator = torch.Generator().manual_seed(0)
    order, outcome = torch.randperm(len(rows), generator=generator), torch.tensor(progress)
    limits = outcome.quantile(torch.tensor([0.4, 0.65, 0.8, 0.9], dtype=outcome.dtype))
    lengths: list[int] = []
    while (left := len(rows) - sum(lengths)) > 16:
        lengths.append(int(torch.randint(4, 17, (), generator=generator)))
    lengths.append(left)
    features = torch.tensor(rows, dtype=torch.float32)[order]
    everything = _queries(20 * features, torch.bucketize(outcome[order], limits), lengths)
    train, test = torch.arange(len(everything)).tensor_split([len(everything) * 2 // 3])
    return everything[train], everything[test]
