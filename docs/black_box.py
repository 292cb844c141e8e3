"""Prints the table of docs/black-box.md: `python docs/black_box.py`, some minutes."""

import torch

from softly_lab.tour.black_box import losses, train

SEEDS, SAMPLES = 10, (3, 10, 30)
DETERMINISTIC = ("blackbox", "negative identity", "SPO+ (sees the costs)")


def main() -> None:
    torch.set_num_threads(1)
    print("| method | " + " | ".join(f"{samples} samples" for samples in SAMPLES) + " |")
    print("|---|" + "---|" * len(SAMPLES))
    for name in losses(torch.Generator()):
        cells = []
        for samples in SAMPLES[:1] if name in DETERMINISTIC else SAMPLES:
            ends = torch.tensor([100 * sum(train(name, seed, samples)[-10:]) / 10 for seed in range(SEEDS)])
            cells.append(f"{ends.mean():.1f} ± {ends.std() / SEEDS**0.5:.1f}")
        cells += ["the same"] * (len(SAMPLES) - len(cells))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
