"""Reading letters, learned from nothing but edit distances of strings (chapter 2)."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import f1_score
from torch import Tensor

from softly.algorithms import library
from softly_lab.data import available, strings
from softly_lab.models import convolutional
from softly_lab.runner import Experiment, option
from softly_lab.training import Training

ALPHABETS = ("AB", "BC", "CD", "DE", "EF", "IL", "OX", "ACGT", "OSXL")


@dataclass(frozen=True)
class Config:
    """One network. The chapter states no batch: 20 pairs are as many as 512 steps need to see its 10,000 pairs."""

    data: str = option("auto", "The letters; auto is emnist, or digits where it is not there.",
                       choices=("auto", "emnist", "digits"))  # fmt: skip
    letters: str = option("AB", "The alphabet.", choices=ALPHABETS)
    method: str = option("relaxed", "The relaxed distance, or the chapter's baseline: the l1 distance of predictions.",
                         choices=("relaxed", "baseline"))  # fmt: skip
    steepness: float = option(9.0, "Of the relaxed distance.", least=0.0)
    length: int = option(32, "Of the strings.", least=4)
    batch_size: int = option(20, "Pairs a step.", least=1)
    learning_rate: float = option(1e-4, "Of Adam.", least=0.0)
    channels: tuple[int, ...] = option((32, 64), "Of the convolutions.", least=1)
    steps: int = option(512, "Batches to learn from.", least=1)
    report: int = option(64, "Steps between two tests.", least=1)
    seed: int = option(0, "Of weights and batches.", least=0)


class Levenshtein(Training):
    """Probabilities of letters, trained by the distance between what the strings are told to have and have."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.steps, self.report = config, config.steps, config.report
        kind = config.data
        if kind == "auto":
            kind = "emnist" if available("emnist-letters") else "digits"
        size = len(config.letters)
        self.train, self.held = strings.emnist(config.letters) if kind == "emnist" else strings.digits(size)
        self.data = (
            f"EMNIST, {config.letters}"
            if kind == "emnist"
            else f"{size} of scikit-learn's digits (stand-in for EMNIST)"
        )
        self.model = convolutional((1, *self.train.pixels.shape[1:]), size, config.channels)
        self.optimizer = torch.optim.Adam(self.model.parameters(), config.learning_rate)

    def _read(self, drawn: Tensor) -> Tensor:
        return self.model(drawn.flatten(0, 1)).softmax(-1).reshape(*drawn.shape[:2], -1)

    def loss(self, number: int) -> Tensor:
        config = self.config
        first, second, distance = strings.pairs(config.batch_size, config.length, self.train.alphabet)
        a, b = (self._read(self.train.drawn(part)) for part in (first, second))
        if config.method == "relaxed":
            found = library.levenshtein(a, b, steepness=config.steepness).distance
        else:
            found = (a - b).abs().sum((-2, -1))
        return torch.nn.functional.mse_loss(found, distance.to(found.dtype))

    def _matched(self) -> tuple[np.ndarray, np.ndarray]:
        """What was read of the test letters, by the names that fit best, and what they are."""
        guess = torch.cat([self.model(part.unsqueeze(1)).argmax(-1) for part in self.held.pixels.split(1000)])
        counts = torch.zeros(self.held.alphabet, self.held.alphabet)
        counts.index_put_((guess, self.held.labels), torch.ones(len(guess)), accumulate=True)
        rows, names = linear_sum_assignment(-counts.numpy())
        return names[np.argsort(rows)][guess.numpy()], self.held.labels.numpy()

    def test(self) -> dict[str, float]:
        read, true = self._matched()
        return {"accuracy": float((read == true).mean()), "F1": float(f1_score(true, read, average="macro"))}

    def pictures(self) -> dict[str, Figure]:
        """The edit matrix of a test pair, of one-hot letters and of what was read."""
        torch.manual_seed(0)
        first, second, _ = strings.pairs(1, self.config.length, self.held.alphabet)
        with torch.no_grad():
            self.model.eval()
            a, b = (self._read(self.held.drawn(part)) for part in (first, second))
        exact = [torch.eye(self.held.alphabet)[part] for part in (first, second)]
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        for axis, pair, steepness, title in zip(
            figure.subplots(1, 2),
            (exact, (a, b)),
            (1e4, self.config.steepness),
            ("hard", f"as read, steepness {self.config.steepness:g}"),
            strict=True,
        ):
            image = axis.imshow(library.levenshtein_program.using(steepness=steepness)(*pair)[0].numpy())
            axis.set_title(title)
            figure.colorbar(image, ax=axis)
        return {"Edit distances of all beginnings of two test strings.": figure}


EXPERIMENT = Experiment(
    name="levenshtein",
    summary="Read letters, learned from edit distances of strings.",
    chapter=2,
    config=Config,
    start=Levenshtein,
    presets={
        "quick": {
            "data": "digits", "length": 12, "channels": (8, 16), "learning_rate": 3e-3, "steps": 150, "report": 50,
        },
        "standard": {},
        "full": {},
    },
    compared={
        "quick": {"method": ("baseline", "relaxed")},
        "standard": {"method": ("baseline", "relaxed"), "letters": ("AB", "OX", "IL"), "seed": range(3)},
        "full": {"method": ("baseline", "relaxed"), "letters": ALPHABETS, "seed": range(10)},
    },
)  # fmt: skip
