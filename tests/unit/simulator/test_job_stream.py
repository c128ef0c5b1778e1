"""Generated streams against the published tables."""

import pytest

from railwright.simulator import job_stream

pytestmark = pytest.mark.exhaustive

MANY = 60_000


@pytest.fixture(scope="module", params=sorted(job_stream.TRACES))
def drawn(request):
    of = job_stream.build(request.param, largest=4096)
    return job_stream.TRACES[request.param], of, list(job_stream.draw_arrivals(of, seed=3, rate=1.0, count=MANY))


def cumulate(jobs, weight, limits, measure):
    total = sum(map(weight, jobs))
    return [100 * sum(weight(job) for job in jobs if measure(job) <= limit) / total for limit in limits]


def test_the_share_of_jobs_of_each_size_is_the_published_one(drawn):
    trace, _, jobs = drawn
    shares = cumulate(jobs, lambda _: 1, job_stream.SIZES, lambda job: job.size)
    assert shares == pytest.approx(trace.jobs, abs=3.0)  # Kalos: a step of jobs without GPU time is left out


def test_the_share_of_gpu_time_of_each_size_is_the_published_one(drawn):
    trace, of, jobs = drawn
    share = {
        device_class.gpus: device_class.share * device_class.gpus * device_class.mean / of.gpu_seconds
        for device_class in of.classes
    }
    expected = [100 * sum(part for gpus, part in share.items() if gpus <= size) for size in job_stream.SIZES]
    assert expected == pytest.approx(trace.gpu_time, abs=0.5)
    shares = cumulate(jobs, lambda job: job.gpu_seconds, job_stream.SIZES, lambda job: job.size)
    assert shares == pytest.approx(trace.gpu_time, abs=10.0)  # the few largest jobs scatter


def test_the_durations_of_all_jobs_are_nearly_the_published_ones(drawn):
    trace, _, jobs = drawn
    shares = cumulate(jobs, lambda _: 1, job_stream.SECONDS, lambda job: job.duration)
    assert shares == pytest.approx(trace.ended, abs=10.0)
    assert sum(job.duration for job in jobs) / MANY == pytest.approx(trace.mean_seconds, rel=0.1)


def test_forty_percent_of_jobs_fail_early(drawn):
    _, _, jobs = drawn
    assert sum(job.failed for job in jobs) / MANY == pytest.approx(job_stream.FAILED, abs=0.02)
    dead = sum(job.gpu_seconds for job in jobs if job.failed) / sum(job.gpu_seconds for job in jobs)
    assert dead == pytest.approx(job_stream.FAILED_GPU_TIME, abs=0.03)


def test_arrivals_offer_the_load_that_was_asked_for(drawn):
    _, of, _ = drawn
    jobs = list(job_stream.draw_arrivals(of, seed=5, rate=job_stream.compute_rate(of, 0.5, 800), count=MANY))
    assert sum(job.gpu_seconds for job in jobs) / (jobs[-1].arrival * 800) == pytest.approx(0.5, rel=0.3)


def test_a_run_begins_with_the_jobs_that_would_be_running(drawn):
    _, of, _ = drawn
    running = job_stream.draw_running(of, seed=5, rate=job_stream.compute_rate(of, 0.5, 40_000))
    assert sum(job.size for job in running) / 40_000 == pytest.approx(0.5, rel=0.3)
    assert all(job.is_initial and job.arrival == 0 for job in running)


def test_equal_seeds_give_equal_jobs_and_others_do_not():
    of = job_stream.build("seren", largest=64)
    one, same, other = (list(job_stream.draw_arrivals(of, seed=seed, rate=1.0, count=50)) for seed in (1, 1, 2))
    assert one == same != other


def test_no_job_is_larger_than_asked_for_and_large_ones_are_gangs_of_whole_nodes():
    of = job_stream.build("seren", largest=64)
    jobs = list(job_stream.draw_arrivals(of, seed=1, rate=1.0, count=5000))
    assert max(job.size for job in jobs) == 64
    assert {(job.pods, job.gpus) for job in jobs if job.size > 8} == {(2, 8), (4, 8), (8, 8)}
    halves = job_stream.draw_arrivals(of, seed=1, rate=1.0, count=5000, pod_gpus=4)
    assert {(job.pods, job.gpus) for job in halves if job.size > 8} == {(4, 4), (8, 4), (16, 4)}


def test_a_stream_ends_at_the_time_asked_for():
    of = job_stream.build("seren", largest=64)
    assert all(job.arrival <= 100 for job in job_stream.draw_arrivals(of, seed=1, rate=1.0, until=100.0))
