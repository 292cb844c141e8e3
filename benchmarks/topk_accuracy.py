"""What `TopKCrossEntropy` reaches beside the softmax: python -m benchmarks.topk_accuracy [NAME ...] [--test].

The default steepness was chosen by the first table, on a fifth of the examples to train on, over three seeds; examples
to test on were looked at once, with ``--test``, after it was chosen. SOFTLY_DATA names the folder of the images.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import softly
from softly_lab.data import images
from softly_lab.experiments.topk import Config, Part, cifar100, digits, families, learn

P_K = (0.5, 0.0, 0.0, 0.0, 0.5)
STEEPNESSES = (0.2, 0.5, 1.0, 2.0, 4.0, 10.0)
TUNING, TESTED = range(100, 103), range(5)


def letters() -> tuple[Part, Part]:
    """10,000 of EMNIST's letters to learn from and all 20,800 to test on, at 7×7 pixels."""
    parts = []
    for (pixels, labels), count in zip(images.emnist_letters(), (10_000, 20_800), strict=True):
        chosen = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))[:count]
        small = pixels[chosen].float().reshape(-1, 7, 4, 7, 4).mean((2, 4)) / 255.0
        parts.append((small.unsqueeze(1), labels[chosen]))
    return parts[0], parts[1]


DATA: dict[str, tuple[Callable[[], tuple[Part, Part]], Config]] = {
    "digits": (digits, Config(p_k=P_K, ks=(1, 5), hidden=64, batch_size=50, epochs=60)),
    "letters": (letters, Config(p_k=P_K, ks=(1, 5), epochs=30)),
    "families": (families, Config(p_k=P_K, ks=(1, 5), epochs=30)),
    "cifar100": (cifar100, Config(p_k=P_K, ks=(1, 5), epochs=25)),
}


def loss_of(top1: str, distribution: str, steepness: float) -> nn.Module:
    sorter = softly.TopKNetwork("splitter", distribution=distribution, steepness=steepness)
    return softly.TopKCrossEntropy(P_K, sorter=sorter, top1=top1)


def chosen_epoch(config: Config, loss: nn.Module, train: Part) -> tuple[int, float]:
    """The epoch with the largest mean of top-1 and top-5 on held-out examples, and that mean in per cent."""
    curves = []
    for seed in TUNING:
        order = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(seed))
        held, kept = order.tensor_split([len(order) // 5])
        parts = [(train[0][rows], train[1][rows]) for rows in (kept, held)]
        curves.append(learn(config, loss, *parts, config.epochs, seed)[1].mean(-1))
    mean = 100 * np.mean(curves, 0)
    return int(mean.argmax()) + 1, float(mean.max())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topk_accuracy", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(DATA))
    parser.add_argument("--top1", default="softmax", choices=("softmax", "sort", "separate"))
    parser.add_argument("--distribution", default="cauchy")
    parser.add_argument("--test", action="store_true", help="test the default, with its own number of epochs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.names or DATA:
        load, config = DATA[name]
        train, test = load()
        if not options.test:
            epoch, reached = chosen_epoch(config, nn.CrossEntropyLoss(), train)
            print(f"{name}: softmax {reached:.2f} ({epoch})", flush=True)
            for steepness in STEEPNESSES:
                epoch, own = chosen_epoch(config, loss_of(options.top1, options.distribution, steepness), train)
                words = f"{options.top1}, {options.distribution} {steepness:g}"
                print(f"{name}: {words} {own - reached:+.2f} ({epoch})", flush=True)
            continue
        for label, loss in (("softmax", nn.CrossEntropyLoss()), ("default", softly.TopKCrossEntropy(P_K))):
            epoch, _ = chosen_epoch(config, loss, train)
            found = 100 * np.array([learn(config, loss, train, test, epoch, seed)[1][-1] for seed in TESTED])
            spread = found.std(0, ddof=1)
            words = ", ".join(
                f"top-{k} {mean:.2f} ± {d:.2f}" for k, mean, d in zip(config.ks, found.mean(0), spread, strict=True)
            )
            print(f"{name}: {label} ({epoch} epochs): {words}", flush=True)


if __name__ == "__main__":
    main()
