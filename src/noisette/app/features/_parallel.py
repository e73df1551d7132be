"""What a map makes of many pictures: a thread for every core, each with a batch of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

__all__ = ["Progress", "run_parallel"]

Progress = Callable[[int, int], None]
"""Is told how many of how many examples are done."""


def run_parallel(
    function: Callable[[Tensor], Tensor], images: Tensor, progress: Progress | None = None, batch: int = 50
) -> Iterator[Tensor]:
    """`function` of `images` (N, ...), `batch` at a time and in order, by as many threads as torch has.

    One picture is too little work for threads to share, so each takes whole batches and computes alone. What comes out
    does not depend on how many there are.

    >>> [found.tolist() for found in run_parallel(lambda x: 2 * x, torch.arange(5), batch=2)]
    [[0, 2], [4, 6], [8]]
    """
    threads = torch.get_num_threads()

    def part(start: int) -> Tensor:
        with torch.no_grad():
            return function(images[start : start + batch])

    starts = range(0, len(images), batch)
    waiting: deque[Future[Tensor]] = deque()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        for number, start in enumerate(starts):
            # enough ahead that no thread waits while a result is used, and no more, since results are large
            while number + len(waiting) < len(starts) and len(waiting) < 2 * threads:
                waiting.append(pool.submit(part, starts[number + len(waiting)]))
            found = waiting.popleft().result()
            yield found
            if progress is not None:
                progress(start + len(found), len(images))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # that of the workers had become the number for threads to come
