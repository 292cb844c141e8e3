"""What is kept is bounded in memory."""

import threading

from softly._cache import bounded


def test_the_least_used_go_first():
    made = []

    @bounded(30, size=len)
    def make(n):
        made.append(n)
        return bytes(n)

    make(10), make(11), make(10)  # fmt: skip
    make(12)  # 33 bytes with the others: 11 was not asked for since
    make(10), make(12)  # fmt: skip
    assert made == [10, 11, 12]
    make(11)
    assert made == [10, 11, 12, 11]


def test_one_that_is_too_large_is_kept_until_the_next():
    made = []

    @bounded(10, size=len)
    def make(n):
        made.append(n)
        return bytes(n)

    make(100), make(100)  # fmt: skip
    assert made == [100]
    make(1)
    make(100)
    assert made == [100, 1, 100]


def test_threads_get_one_result():
    barrier = threading.Barrier(4)

    @bounded(10**6, size=lambda _: 1)
    def make(n):
        barrier.wait()  # all four are in here before the first is done
        return object()

    results = []
    workers = [threading.Thread(target=lambda: results.append(make(1))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len({id(result) for result in results}) == 1
