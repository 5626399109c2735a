# SPDX-License-Identifier: MIT OR Apache-2.0
"""Threads as Python uses them: what is printed is the same on kernel threads."""

import concurrent.futures
import os
import queue
import socket
import subprocess
import sys
import threading
import time


def worker(tasks, results):
    while (task := tasks.get()) is not None:
        results.append(task * task)
        time.sleep(0.0005)


def queues():
    tasks, results = queue.Queue(), []
    threads = [threading.Thread(target=worker, args=(tasks, results)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for number in [*range(1000), *[None] * len(threads)]:
        tasks.put(number)
    for thread in threads:
        thread.join()
    print(len(results), sum(results))


def echo(connection):
    with connection:
        while data := connection.recv(100):
            connection.sendall(data.upper())


def serve(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def ask(address, number):
    with socket.create_connection(address) as connection:
        for _ in range(10):
            connection.sendall(b"hello%d" % number)
            assert connection.recv(100) == b"HELLO%d" % number
    return 1


def sockets():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            print(sum(pool.map(lambda number: ask(listener.getsockname(), number), range(200))))


def processes():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        run = lambda number: subprocess.run(["echo", str(number)], capture_output=True).stdout
        print(list(pool.map(run, range(8))))


def locks():
    barrier, event = threading.Barrier(10), threading.Event()
    semaphore, lock, done = threading.Semaphore(2), threading.RLock(), []

    def body():
        barrier.wait()
        event.wait(5)
        with semaphore, lock, lock:
            time.sleep(0.001)
            done.append(1)

    threads = [threading.Thread(target=body) for _ in range(10)]
    for thread in threads:
        thread.start()
    event.set()
    for thread in threads:
        thread.join()
    begun = time.monotonic()
    waited = threading.Event().wait(0.2)
    print(len(done), waited, time.monotonic() - begun >= 0.2)


def fork():
    child = os.fork()
    if child == 0:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def cpus():
    """A thread, and whatever it starts, has the CPUs of the process."""
    ask = "import os; print(len(os.sched_getaffinity(0)))"

    def body():
        print(len(os.sched_getaffinity(0)))
        for start_new_session in (False, True):  # by vfork, and by fork
            command = [sys.executable, "-c", ask]
            subprocess.run(command, start_new_session=start_new_session, check=True)
        os.system(f"{sys.executable} -c '{ask}'")
        child = os.posix_spawn(sys.executable, [sys.executable, "-c", ask], os.environ)
        os.waitpid(child, 0)
        child = os.fork()
        if child == 0:
            print(len(os.sched_getaffinity(0)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)

    sys.stdout.reconfigure(line_buffering=True)
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


for check in (queues, sockets, processes, locks, fork, cpus):
    check()
