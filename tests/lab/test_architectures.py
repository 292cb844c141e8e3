"""The chapter's networks by name."""

import pytest

from softly_lab import architectures

TABLE = {  # layers, gates a layer, classes, 1 / tau and input bits of the chapter
    "monk1": (6, 24, 2, 1, 17),
    "monk2": (6, 12, 2, 1, 17),
    "monk3": (6, 12, 2, 1, 17),
    "adult": (5, 256, 2, 0.075, 116),
    "breast_cancer": (5, 128, 2, 0.1, 51),
    "mnist_small": (6, 8000, 10, 0.1, 784),
    "mnist": (6, 64000, 10, 0.03, 784),
    "cifar10_small": (4, 12000, 10, 0.03, 9216),
    "cifar10_medium": (4, 128000, 10, 0.01, 9216),
    "cifar10_large": (5, 256000, 10, 0.01, 95232),
    "cifar10_large_x2": (5, 512000, 10, 0.01, 95232),
    "cifar10_large_x4": (5, 1024000, 10, 0.01, 95232),
}


def test_all_architectures_of_the_chapter_are_there():
    assert architectures.names() == tuple(TABLE)
    for name, (depth, width, classes, inverse, bits) in TABLE.items():
        architecture = architectures.get(name)
        assert (architecture.depth, architecture.width, architecture.classes) == (depth, width, classes)
        assert architecture.tau == pytest.approx(1 / inverse)
        assert architecture.encoding().num_bits == bits
    network = architectures.get("adult").network(seed=0, init="residual")
    assert [layer.out_dim for layer in network.layers] == [256] * 5
    assert network.encoding.num_bits == network.layers[0].in_dim == 116
    with pytest.raises(ValueError, match="name must be one of monk1, "):
        architectures.get("imagenet")
