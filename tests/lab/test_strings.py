"""Strings of letters: their edit distances, and what they look like."""

import torch
from rapidfuzz.distance import Levenshtein

from softly_lab.data import strings


def test_distances():
    torch.manual_seed(0)
    for alphabet, mean in ((2, 4.47), (4, 5.26)):
        first, second, distance = strings.pairs(400, 32, alphabet)
        expected = [Levenshtein.distance(a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
        assert distance.tolist() == expected
        error = distance.double().std() / 20
        assert abs(distance.double().mean() - mean) < 4 * error


def test_images_show_the_letters():
    train, held = strings.digits(3)
    letters = torch.tensor([[0, 2, 1], [1, 1, 0]])
    drawn = train.drawn(letters)
    assert drawn.shape == (2, 3, 1, 8, 8)
    for image, letter in zip(drawn.flatten(0, 1), letters.flatten(), strict=True):
        same = (train.pixels == image).all((-2, -1))
        assert letter in train.labels[same]
    assert set(held.labels.tolist()) == {0, 1, 2}
