"""Bad parameter files and `--grid` options."""

from sparktrain.config.param_files.load import load_params, parse_assignment, parse_assignments
from tests.unit.bad_input.case import Case


def file(id: str, name: str, content: str | bytes, *patterns: str) -> Case:
    return Case(f"file-{id}", lambda files: load_params(files.write(name, content)), patterns)


def option(id: str, text: str, *patterns: str) -> Case:
    return Case(f"option-{id}", lambda _: parse_assignment(text), patterns)


def bomb() -> str:
    """A billion values in a few lines."""
    lines = ["  k0: &k0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"  k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]" for n in range(1, 9)]
    return "\n".join(["grid:", *lines])


CASES = [
    file("suffix", "sweep.txt", "grid:", r"sweep\.txt", r"ends in \.yaml", "rename"),
    file("empty", "s.yaml", " \n", r"s\.yaml", "empty", "write a key"),
    file("comments", "s.yaml", "# nothing\n", r"s\.yaml", "only comments", "write a key"),
    file("scalar", "s.yaml", "hello", r"s\.yaml:1", "hello", "names with values", "write 'name: value'"),
    file("encoding", "s.yaml", b"grid:\n  a: [\xe9]\n", r"s\.yaml:2", "0xe9 is not UTF-8", "save"),
    file("syntax", "s.yaml", "grid:\n  lr: [0.1\nmetric: x\n", r"s\.yaml:3", "invalid YAML", "indent"),
    file("tab", "s.yaml", "grid:\n\tlr: [1]\n", r"s\.yaml:2", "invalid YAML", "indent with spaces"),
    file("control", "s.yaml", "grid:\n lr: ['\x07']\n", r"s\.yaml:2", "special characters", "remove"),
    file(
        "unknown-key",
        "s.yaml",
        "grid:\n  lr: [1]\nmetrc: a\n",
        r"s\.yaml:3",
        "'metrc'",
        "did you mean 'metric'",
        "allowed: ",
    ),
    file("no-space", "s.yaml", "metric: a\n", r"s\.yaml:1", "exactly one of grid, zip, cases and space", "has none"),
    file("two-spaces", "s.yaml", "grid:\n  a: [1]\nzip:\n  a: [1]\n", r"s\.yaml:3", "exactly one", "has grid and zip"),
    file("duplicate", "s.yaml", "grid:\n  a: [1]\n  a: [2]\n", r"s\.yaml:3", "'a'", "given on line 2", "remove one"),
    file("tag", "s.yaml", "grid:\n  a: [!!python/name:os.system x]\n", r"s\.yaml:2", "!!python/name", "remove the tag"),
    file("object", "s.yaml", "!!python/object/apply:os.abort []\n", r"s\.yaml:1", "!!python/object", "not supported"),
    file(
        "scalar-values",
        "s.yaml",
        "grid:\n  lr: 0.1\n",
        r"s\.yaml:2",
        "'lr'",
        r"is 0\.1,",
        "a list is expected",
        r"write \[0\.1\]",
    ),
    file("no-values", "s.yaml", "grid:\n  lr: []\n", r"s\.yaml:2", "'lr'", "empty list", "at least one"),
    file("no-names", "s.yaml", "grid: {}\n", r"s\.yaml:1", "grid is empty", "write 'lr:"),
    file("name", "s.yaml", "grid:\n  learning-rate: [1]\n", r"s\.yaml:2", "'learning-rate'", "'learning_rate'"),
    file("ctx", "s.yaml", "grid:\n  ctx: [1]\n", r"s\.yaml:2", "'ctx' is not a hyperparameter"),
    file("nan", "s.yaml", "grid:\n  lr: [1, .nan]\n", r"s\.yaml:2", "'lr'", r"\.nan", "must be finite", "null"),
    file(
        "zip-lengths", "s.yaml", "zip:\n  a: [1]\n  b: [1, 2]\n", r"s\.yaml:2", "'a' has 1, 'b' has 2", "equally long"
    ),
    file("case-type", "s.yaml", "cases:\n- lr: 1\n- 2\n", r"s\.yaml:3", "case 2 is 2", "names with values"),
    file("setting-type", "s.yaml", "grid: {a: [1]}\ntrials: many\n", r"s\.yaml:2: trials", "'many'", "whole number"),
    file("setting-value", "s.yaml", "grid: {a: [1]}\ntrials: 0\n", r"s\.yaml:2: trials", r"\(0\)", "at least 1"),
    file(
        "setting-empty", "s.yaml", "grid: {a: [1]}\nmetric:\n", r"s\.yaml:2", "metric has no value", "remove the line"
    ),
    file("mode", "s.yaml", "grid: {a: [1]}\nmode: best\n", r"s\.yaml:2: mode", "'best'", "'max' or 'min'"),
    file("timeout", "s.yaml", "grid: {a: [1]}\ntimeout: 5 minutes\n", r"s\.yaml:2: timeout", "'5 minutes'", "'5m'"),
    file("run-name", "s.yaml", "grid: {a: [1]}\nname: 12\n", r"s\.yaml:2: name", r"12 \(int\)", "write '12'"),
    file("dir", "s.yaml", "grid: {a: [1]}\ndir: 3\n", r"s\.yaml:2: dir", r"3 \(int\)", "path or URL"),
    file("bomb", "s.yaml", bomb(), r"s\.yaml:2", "aliases repeat more than 50,000", "list fewer"),
    file(
        "endless", "s.yaml", "grid: &all\n  a: [1, *all]\n", r"s\.yaml:\d", "'a' is nested deeper than 32", "use fewer"
    ),
    file("deep-yaml", "s.yaml", "grid:\n a: " + "[" * 500 + "]" * 500, r"s\.yaml", "nested", "use"),
    file("deep", "s.json", "[" * 100_000, r"s\.json", "nested too deeply"),
    file("json", "s.json", '{"grid": {"a": [1,]}}', r"s\.json:1", "invalid JSON", "column", r"\.yaml"),
    file("json-key", "s.json", '{"grid": {"a": [1]},\n\t"sed": 3}', r"s\.json:2", "'sed'", "did you mean 'seed'"),
    file("json-nan", "s.json", '{"grid": {"a": [NaN]}}', r"s\.json:1", "NaN", "must be finite"),
    file("csv-width", "s.csv", "lr,d\n1,2\n\n1,2,3\n", r"s\.csv:4", "3 cells, the header names 2", "quote a cell"),
    file("csv-header", "s.csv", "lr,lr\n1,2\n", r"s\.csv:1", "'lr' twice", "remove one"),
    file("csv-name", "s.csv", "lr,1st\n1,2\n", r"s\.csv:1", "'1st'", "cannot be the name", "'_1st'"),
    file("csv-rows", "s.csv", "lr,d\n", r"s\.csv", "at least one row", "lr, d"),
    file("csv-semicolon", "s.csv", "lr;d\n1;2\n", r"s\.csv:1", "no comma", "in place of ';'"),
    file("csv-quote", "s.csv", 'lr,d\n1,"2\n', r"s\.csv:2", "invalid CSV", "twice"),
    file("csv-nan", "s.csv", "lr\nnan\n", r"s\.csv:2", "'lr'", "nan", "must be finite"),
    Case(
        "file-missing",
        lambda f: (f.write("sweep.yaml", "x"), load_params(f.folder / "sweeps.yaml")),
        (r"sweeps\.yaml", "no such file", r"did you mean 'sweep\.yaml'"),
    ),
    Case(
        "file-folder",
        lambda f: (f.write("d.yaml/x", "x"), load_params(f.folder / "d.yaml")),
        (r"d\.yaml", "is a directory", "pass one of its files"),
    ),
    option("no-equals", "lr", "--grid 'lr'", "no '='", "NAME=VALUE", "write --grid lr=0.1,0.01"),
    option("no-value", "lr=", "--grid 'lr='", "'lr' has no value", "null"),
    option("no-name", "=1", "--grid '=1'", "''", "cannot be the name"),
    option("name", "learning-rate=1", "--grid 'learning-rate=1'", "'learning_rate'"),
    option("empty-item", "lr=0.1,,0.2", "--grid 'lr=0.1,,0.2'", "value 2 is empty", "remove the comma"),
    option("json", "lr=[0.1, x]", r"--grid 'lr=\[0.1, x\]'", "JSON list is expected", "double quotes"),
    option("json-empty", "lr=[]", r"--grid 'lr=\[\]'", "empty list", "add a value"),
    option("quote", 'lr="a,b', "--grid", "cannot be separated", "double quotes around"),
    option("nan", "lr=nan", "--grid 'lr=nan'", "nan", "must be finite", "null"),
    Case(
        "option-twice",
        lambda _: parse_assignments(["lr=1", "lr=2"], "--zip"),
        ("--zip 'lr=2'", "given twice", "into one list"),
    ),
]
