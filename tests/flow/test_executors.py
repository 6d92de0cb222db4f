"""`@step(runtime=my_executor)`: the work of a step is done by an object of the user's; all else stays crewlite's."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from crewlite import History
from crewlite.errors import ConfigError, StepTimeout
from crewlite.flow import Executor, Flow, Job, flow, listen, start, step


class Pool:
    """A pool of the standard library."""

    def __init__(self, pool):
        self.pool, self.jobs, self.cancelled = pool, [], []

    def check(self, name, func):
        if func.__name__.startswith("bad"):
            raise ConfigError(f"{name} is bad")

    async def run(self, job: Job):
        self.jobs.append(job)
        try:
            return await asyncio.get_running_loop().run_in_executor(self.pool, job.func, *job.args)
        except asyncio.CancelledError:
            self.cancelled.append(job.name)
            raise


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2, thread_name_prefix="mine") as pool:
        yield Pool(pool)


@pytest.fixture
def processes():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield Pool(pool)


def test_a_step_runs_in_a_process_of_the_users_pool_and_is_answered_from_the_record(processes, on_disk):
    executor: Executor = processes
    elsewhere = step(name="elsewhere", runtime=executor)(os.getpid)
    pipeline = flow(name="pipeline", checkpoint=on_disk())(lambda: elsewhere())
    pid = pipeline.kickoff(run_id="one")
    assert pid != os.getpid()
    assert pipeline.kickoff(run_id="one") == pid
    (job,) = processes.jobs
    assert (job.name, job.is_async, job.args, len(job.idempotency_key)) == ("elsewhere", False, (), 32)


def test_a_method_of_a_flow_runs_in_a_thread_of_the_users_pool_with_its_own_idempotency_key(threads):
    class Two(Flow):
        @start(runtime=threads)
        def begin(self):
            return threading.current_thread().name

        @listen(begin, runtime=threads)
        def go_on(self, where):
            return where, threading.current_thread().name

    assert all(name.startswith("mine") for name in Two().kickoff())
    first, second = (job.idempotency_key for job in threads.jobs)
    assert first != second and len(first) == len(second) == 32


def test_what_it_raises_is_a_failed_try(threads, on_disk):
    tries = []

    @step(runtime=threads, retries=1)
    def shaky(n):
        tries.append(threading.current_thread().name)
        if len(tries) == 1:
            raise ConnectionError("the line is down")
        return n + 1

    pipeline = flow(name="pipeline", checkpoint=on_disk())(lambda: shaky(1))
    assert pipeline.kickoff(run_id="one") == 2
    assert all(name.startswith("mine") for name in tries) and len(tries) == 2
    with History(pipeline.checkpoint.location) as history:
        (attempt,) = history.run("one").attempts
    assert attempt.error_type == "ConnectionError"


def test_time_that_is_up_cancels_it(threads):
    over = threading.Event()
    slow = step(name="slow", runtime=threads, timeout=0.3)(lambda: over.wait(30))
    with pytest.raises(StepTimeout):
        flow(lambda: slow()).kickoff()
    over.set()
    assert threads.cancelled == ["slow"]


def test_it_refuses_a_function_when_it_is_decorated(threads):
    def bad_one(): ...

    with pytest.raises(ConfigError, match="bad_one is bad"):
        step(runtime=threads)(bad_one)


class Halfway:
    def check(self, name, func): ...


class Blocking(Halfway):
    def run(self, job): ...


@pytest.mark.parametrize("wrong", ["threads", None, 3, Halfway(), Blocking(), Pool, ["inline"]])
def test_what_is_no_executor_is_told_what_one_has(wrong):
    with pytest.raises(ConfigError, match=r"runtime is .*; wanted one of inline, isolated, or an executor: an object"):
        step(runtime=wrong)(lambda: 1)


def test_a_job_can_be_sent_to_another_process_as_it_is():
    sent = []

    class Sending:
        def check(self, name, func):
            return None

        async def run(self, job: Job):
            sent.append(job)
            arrived = pickle.loads(pickle.dumps(job))
            assert arrived == job
            return arrived.func(*arrived.args)

    elsewhere = step(name="elsewhere", runtime=Sending())(abs)
    assert flow(name="pipeline")(lambda: elsewhere(-4)).kickoff() == 4
    assert len(sent[0].idempotency_key) == 32
