# Says "ready", sleeps 10 ms again and again, computes 1 ms or, each fourth time, 3 ms, and prints
# at its end how late it was: p50 and p99, in us. Arguments: the time that does not count, and the
# time after that, in ms.
import asyncio
import sys
import time


def count(rounds):
    for _ in range(rounds):
        pass


def rounds_per_ms():
    best = 1e9
    for _ in range(7):
        begin = time.thread_time_ns()
        count(2000)
        best = min(best, time.thread_time_ns() - begin)
    return int(2000 * 1e6 / best)


async def main(settle_ns, counted_ns):
    late = []
    per_ms = rounds_per_ms()
    print("ready", flush=True)
    begin_ns = time.monotonic_ns() + settle_ns
    end_ns = begin_ns + counted_ns
    turn = 0
    while True:
        due = time.monotonic_ns() + 10_000_000
        await asyncio.sleep(0.010)
        now = time.monotonic_ns()
        if now >= end_ns:
            break
        if now >= begin_ns:
            late.append(now - due)
        turn += 1
        count(per_ms * (1 if turn % 4 else 3))
    late.sort()
    print(*[late[len(late) * part // 100] // 1000 for part in (50, 99)])


asyncio.run(main(*[int(word) * 1_000_000 for word in sys.argv[1:3]]))
