"""Bad settings of a sweep."""

from datetime import timedelta

from sparktrain.config.call_option import settled
from sparktrain.config.gang_options import MemberKeywords
from sparktrain.config.quantities import seconds
from sparktrain.config.sweep_spec import SweepSpec
from tests.unit.bad_input.case import Case, spec_case


def spec(id: str, *patterns: str, **values: object) -> Case:
    return Case(f"spec-{id}", lambda _: SweepSpec(**{"name": "run", **values}), patterns)


CASES = [
    spec("name-empty", "^name", "''", "1 to 128", "use 'run-1'", name=""),
    spec("name-slash", "^name", "'a/b'", "letters, digits", "use 'a-b'", name="a/b"),
    spec("name-dot", "^name", r"'mnist\.'", "does not end with '\\.'; use 'mnist'", name="mnist."),
    spec("name-dots", "^name", r"'\.\.'", "starts with a letter or digit", name=".."),
    spec("name-newline", "^name", r"'run\\n'", "use 'run-'", name="run\n"),
    spec("name-long", "^name", "1 to 128", name="a" * 129),
    spec("name-number", "^name", r"7 \(int\)", "text is expected", "write '7'", name=7),
    spec("metric-type", "^metric", r"\['loss'\] \(list\)", "text is expected", "name a key", metric=["loss"]),
    spec("metric-empty", "^metric", "''", "empty or has spaces", "name a key", metric=""),
    spec("mode-word", "^mode", "'maximize'", "must be 'max' or 'min'", mode="maximize"),
    spec("mode-none", "^mode", "None", "must be 'max' or 'min'", mode=None),
    spec("trials-zero", "^trials", r"\(0\)", "at least 1", "pass 1 or more", trials=0),
    spec("trials-float", "^trials", r"10\.0 \(float\)", "whole number", "pass an int", trials=10.0),
    spec("trials-bool", "^trials", r"True \(bool\)", "whole number", trials=True),
    spec("seed-negative", "^seed", r"\(-1\)", "at least 0", seed=-1),
    spec("seed-large", "^seed", r"\(9223372036854775808\)", r"below 2\*\*63", "smaller", seed=2**63),
    spec("seed-huge", "^seed", r"below 2\*\*63", seed=10**5000),
    spec("seed-text", "^seed", r"'1' \(str\)", "whole number", "pass an int", seed="1"),
    spec("timeout-zero", "^trial_timeout_s", r"\(0\)", "above 0", "leave it out", trial_timeout_s=0),
    spec("timeout-nan", "^timeout_s", r"\(nan\)", "finite", "leave it out", timeout_s=float("nan")),
    spec("timeout-inf", "^timeout_s", r"\(inf\)", "finite", "leave it out", timeout_s=float("inf")),
    spec("timeout-huge", "^timeout_s", "finite", timeout_s=10**400),
    spec("timeout-bool", "^timeout_s", r"True \(bool\)", "pass seconds", timeout_s=True),
    spec("timeout-delta", "^timeout_s", r"timedelta\(days=-1\)", "above 0", timeout_s=timedelta(days=-1)),
    spec("start-timeout-none", "^start_timeout_s", "None", "must end", "300", start_timeout_s=None),
    spec("retries-negative", "^max_retries", r"\(-1\)", "at least 0", max_retries=-1),
    spec("failures-zero", "^max_failures", r"\(0\)", "at least 1", max_failures=0),
    spec("failures-word", "^max_failures", r"\('never'\)", "a number of trials, 'auto', or None", max_failures="never"),
    spec("report-timeout-zero", "^report_timeout_s", r"\(0\)", "above 0", report_timeout_s=0),
    spec("gpus-negative", "^gpus", r"\(-1\)", "at least 0", gpus=-1),
    spec("gpu-memory-unit", "^gpu_memory", "'8 apples'", "not an amount of memory", "'8GiB'", gpu_memory="8 apples"),
    spec("notice-relative", "^notice", "'leaving'", "must be an absolute path", "'/run/leaving'", notice="leaving"),
    spec("notice-scheme", "^notice", "'ftp://x/y'", "with https:// or http://", notice="ftp://x/y"),
    spec("notice-host", "^notice", "'https://'", "with https:// or http://", notice="https://"),
    spec("notice-port", "^notice", "'https://x:y/'", "with https:// or http://", notice="https://x:y/"),
    spec("notice-far", "^notice", "'http://x.y/z'", "must start with https://", "127.0.0.1", notice="http://x.y/z"),
    spec("notice-near", "^notice", "must start with https://", notice="http://10.0.0.1/"),
    spec("notice-secret", "^notice", "a password in its URL of x", "one without|without one", notice="https://a:b@x/"),
    spec("notice-type", "^notice", "a path or URL is expected", "'/run/leaving'", notice=7),
    spec("gpu-memory-plain", "^gpu_memory", "'8'", "not an amount of memory", "GiB", gpu_memory="8"),
    spec("gpu-memory-zero", "^gpu_memory", r"\(0\)", "at least 1 MiB", "'8GiB'", gpu_memory=0),
    spec("gpu-memory-none", "^gpu_memory", r"\('0GiB'\)", "at least 1 MiB", gpu_memory="0GiB"),
    spec("gpu-memory-negative", "^gpu_memory", "'-1GiB'", "not an amount", gpu_memory="-1GiB"),
    spec("gpu-memory-float", "^gpu_memory", r"8\.5 \(float\)", "amount of memory is expected", gpu_memory=8.5),
    spec("gpu-memory-bool", "^gpu_memory", r"True \(bool\)", "amount of memory is expected", gpu_memory=True),
    spec("gpu-memory-gpus", "^gpus", r"\(2\)", "part of one GPU", "leave out gpus", gpus=2, gpu_memory="8GiB"),
    spec_case(
        "spec-log-limit", lambda: settled(MemberKeywords, {"log_limit": 100}), "^log_limit", r"\(100\)", "at least 1024"
    ),
    spec_case(
        "spec-duration-unit", lambda: seconds("5x", "timeout"), "^timeout", "'5x'", "not a duration", "'90s', '5m'"
    ),
    spec_case("spec-duration-type", lambda: seconds([5], "timeout"), "^timeout", r"\[5\] \(list\)", "pass seconds"),
]
