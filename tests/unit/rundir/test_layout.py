"""The paths of a run."""

import msgspec
import pytest

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.errors import SpecError
from sparktrain.rundir.event_files import segment
from sparktrain.rundir.layout import BlockName, RunLayout
from sparktrain.store.base import check_path


def test_paths() -> None:
    run = RunLayout("mnist")
    member = run.member(Member(RunId("mnist"), TrialId(3), Generation(1), Rank(0)))
    assert run.results == "mnist/results.json"
    assert run.spec == "mnist/run.json"
    assert run.trial(TrialId(3)) == "mnist/trials/0003"
    assert run.trial(TrialId(12345)) == "mnist/trials/12345"
    assert member.path == "mnist/trials/0003/generation-1/rank-0"
    assert member.log == f"{member.path}/log.txt"
    assert member.model == f"{member.path}/model.keras"
    assert member.files == f"{member.path}/files"


def test_the_files_of_a_coordinator_and_requests_to_stop_are_the_runs() -> None:
    run = RunLayout("mnist")
    folder = run.coordinator("0123456789ab")
    assert folder.claim(1) == "mnist/coordinators/0123456789ab/claim-0001.json"
    for path in (folder.claim(1), folder.address(12), folder.call, folder.end, run.stop("1795750877079341-53fc22f3")):
        assert run.owns(path), path
    operation = folder.operation("126f3811-c512-46d5-86b8-07ff38c15aa5")
    for path in (operation, folder.client_heartbeat(12), folder.heartbeat(1, 2), folder.application):
        assert run.owns(path), path
    for path in ("mnist/coordinators/", f"{folder.path}/", "mnist/stops/"):
        assert run.owns(path), path
    for path in ("mnist/coordinators/mine.txt", f"{folder.path}/notes.json", "mnist/stops/now.json"):
        assert not run.owns(path), path


def test_logs_are_recognized_by_their_paths() -> None:
    run = RunLayout("mnist")
    member = Member(RunId("mnist"), TrialId(12345), Generation(2), Rank(10))
    assert run.member_of_log(run.member(member).log) == member
    for path in (run.member(member).model, "other/trials/0000/generation-1/rank-0/log.txt", run.results):
        assert run.member_of_log(path) is None
    assert run.member_of_log("mnist/trials/1/generation-01/rank-0/log.txt") is None
    assert run.member_of_log("mnist/trials/0001/generation-1/rank-2-restart-0/log.txt") is None


def test_a_member_that_restarted_alone_has_files_of_its_own() -> None:
    run, first = RunLayout("mnist"), Member(RunId("mnist"), TrialId(1), Generation(2), Rank(3))
    second = msgspec.structs.replace(first, incarnation=1)
    assert run.member(second).log == "mnist/trials/0001/generation-2/rank-3-restart-1/log.txt"
    assert run.member_of_log(run.member(second).log) == second
    assert run.member(first).log == "mnist/trials/0001/generation-2/rank-3/log.txt"


MEMBER = RunLayout("mnist").member(Member(RunId("mnist"), TrialId(3), Generation(1), Rank(0)))


@pytest.mark.parametrize("name", ["log.txt", "model.keras", "files/events.out.tfevents.1.host", "files/a/b c.png"])
def test_uploads_of_an_agent(name: str) -> None:
    assert MEMBER.file(name) == f"{MEMBER.path}/{name}"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "files",
        "files/",
        "files/../../rank-1/log.txt",
        "files//a",
        "../x",
        "/etc/passwd",
        "results.json",
        "model.keras/a",
    ],
)
def test_refused_uploads_of_an_agent(name: str) -> None:
    with pytest.raises(SpecError, match="of a member must be"):
        MEMBER.file(name)


@pytest.mark.parametrize("name", ["mnist", "mnist 2", "größe", "a.b-c_d", "x" * 200])
def test_names(name: str) -> None:
    assert check_path(RunLayout(name).results) == f"{name}/results.json"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "a:b", "a\n", " a", "a ", ".tmp-a", "x" * 201, "ö" * 101, "\udc80"]
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="name"):
        RunLayout(name)


RUN = RunLayout("mnist")
RESTARTED = RUN.member(Member(RunId("mnist"), TrialId(12345), Generation(2), Rank(10), 1))
CHECKPOINTS = RUN.generation(TrialId(3), Generation(0))
HEX = "0123456789abcdef" * 4
OWN = (
    RUN.spec, RUN.results, RUN.old_results(2), RUN.plan(HEX[:16]), RUN.code(HEX), f"{RUN.boards}/{HEX[:8]}.json",
    RUN.enqueued(f"1700000000000-{HEX[:8]}"), RUN.label(f"1700000000000-{HEX[:8]}"),
    RUN.drain(f"1700000000000-{HEX[:8]}"),
    RUN.data_manifest("train", HEX[:12]), f"{RUN.dataset('a-b', HEX[:12])}/00007-12-{HEX[:8]}-3.arrow",
    f"{RUN.dataset('train', HEX[:12])}/table-{HEX[:8]}-0.arrow", f"{RUN.feed('rows', HEX[:8])}/ended",
    f"{RUN.feed('rows', HEX[:8])}/0000000001-0000000002", RUN.journal.term(1), RUN.journal.batch(12345, 1),
    RUN.journal.snapshot(1, 2), RUN.journal.removal(1), RUN.reports.block(BlockName(HEX[:8], 1, 2)),
    RUN.reports.block(BlockName(HEX[:8], 1, 2, old=True)), MEMBER.log, MEMBER.model, MEMBER.file("files/a/b c.png"),
    MEMBER.file("files/log.txt/run.json"), segment(MEMBER.file("files/a/events.out.tfevents.1"), 4096), RESTARTED.log,
    RUN.generation(TrialId(3), Generation(2), 1).manifest(7),
    CHECKPOINTS.manifest(100), f"{CHECKPOINTS.data(100, HEX[:32])}.model.safetensors",
)  # fmt: skip


@pytest.mark.parametrize("path", OWN)
def test_a_run_owns_what_it_writes_and_the_folders_of_that(path: str) -> None:
    assert RUN.owns(path)
    assert not RunLayout("mnist-2").owns(path)
    parts = path.split("/")
    assert all(RUN.owns("/".join(parts[:count]) + "/") for count in range(1, len(parts)))


@pytest.mark.parametrize(
    "path",
    [
        "", "mnist", "mnist//", "mnist/notes.txt", "mnist/run.json/", "mnist/run.json.bak", "mnist/run.json\n",
        "mnist/data/notes.txt", "mnist/data/x/", "mnist/data/x-0123456789ab/notes.txt", "mnist/data/run.json",
        "mnist/plans/mine.json", "mnist/plans/0123456789abcdef.json/", "mnist/code/train.py", "mnist/trials/best/",
        "mnist/trials/0001/notes.txt", "mnist/trials/0001/run.json", "mnist/trials/1/", "mnist/trials/trials/",
        "mnist/trials/0001/generation-1/rank-0/notes.txt", "mnist/trials/0001/checkpoints/best/",
        "mnist/trials/0001/checkpoints/gen-0001/data/00000001-mine", "mnist/journal/term-0001.bak", "mnist/journal/b/",
        "mnist/results-before-1.json", "mnist/probe-1", "mnist/mnist/run.json", "mnist/b/run.json", "mnist/b/",
        "other/run.json",
    ],
)  # fmt: skip
def test_a_run_does_not_own_what_only_looks_like_that(path: str) -> None:
    assert not RUN.owns(path)
