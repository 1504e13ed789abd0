"""What a run trains: a function of this process, or the one that another run has stored."""

import ast
import itertools
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from sparktrain.base.nesting import check_imported
from sparktrain.config import uses
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.param_values import did_you_mean
from sparktrain.driver.backend_choice import keras_setting
from sparktrain.errors import SpecError
from sparktrain.protocol.messages import Code
from sparktrain.protocol.settings import script_settings
from sparktrain.protocol.settings.held_state import Assigned
from sparktrain.runs.plan import Plan
from sparktrain.search.space import Space
from sparktrain.usercode.assigned_values import assigned
from sparktrain.usercode.code_changes import text_of
from sparktrain.usercode.fingerprint import digests_of, fingerprint
from sparktrain.usercode.framework_imports import FrameworkImports, framework_imports, framework_imports_in
from sparktrain.usercode.imports import Sources
from sparktrain.usercode.keras_choice import KerasChoice, keras_choice, keras_choice_in
from sparktrain.usercode.module_edits import check_edited
from sparktrain.usercode.pickler import can_be_pickled
from sparktrain.usercode.preload import KerasInTrials, PreloadChoice, shared
from sparktrain.usercode.script_target import check_options
from sparktrain.usercode.serialize import A_COPY, holds_environment, is_of_environment, pack, preload_choice
from sparktrain.usercode.source_imports import MOST_CHARS
from sparktrain.usercode.target import Target, check_call

MOST_CASES = 10_000
"""So many cases are looked at for texts: a grid of them has every value several times."""


Settings = dict[str, script_settings.Values]
logger = logging.getLogger("sparktrain")
_PLAIN = (bool, int, float, str, bytes)


class PackedProgram(NamedTuple):
    """A program as executors and the plan of its run get it."""

    name: str
    code: Code
    parts: dict[str, str]
    preload: Sequence[str]
    text: str
    notes: tuple[str, ...] = ()
    """What trials take over, and what zygotes leave to them, for the first lines of the run."""


class FunctionProgram:
    """A function of this process."""

    def __init__(self, function: Callable[..., Any] | Target) -> None:
        self._target = function if isinstance(function, Target) else Target.of(function)
        self._values: set[str] = set()
        """Texts among the parameters that were checked."""
        self.slug = self._target.slug
        """The start of a generated name of the run."""

    def check(self, kind: str, space: Space, place: str) -> None:
        """Raise UserError where it cannot be called with the cases of `space`, which the caller wrote in `place`."""
        if (module := self._target.module) is not None:
            check_imported(kind, sys.modules.get(module), module)
        check_call(self._target.function, space.examples(), place)
        if self._target.bound is not None:
            check_options(self._target, itertools.islice(space.examples(), MOST_CASES), place)
        # `importlib.import_module("models." + name)` names a package by a parameter alone, which packing looks for.
        self._values = _texts(space, place)

    def makes_strategy(self) -> bool:
        """Whether it makes a strategy of TensorFlow."""
        return uses.makes_strategy(self._target.function)

    @cached_property
    def imports(self) -> FrameworkImports:
        """What its code, and the user's modules that it reaches, import. Blocks on the local disk."""
        return framework_imports(self._target)

    def uses_keras(self) -> bool:
        """Whether its modules import Keras. Blocks as above."""
        return self.imports.has_keras

    def keras_choice(self) -> KerasChoice | None:
        """The backend of Keras that it chooses whenever it runs; None where it chooses none, or that depends."""
        return keras_choice(self._target)

    def packed(
        self, gang: GangSpec, env: Mapping[str, str], limit: int, preload: Sequence[str] | None
    ) -> PackedProgram:
        """The program in bytes, at most `limit` of them, with the modules to preload unless they are named."""
        # One reading for all: a call that read its modules for each took 160 ms for 440 files, before its first trial.
        sources = Sources()
        target = self._target
        if preload is None:
            by_code = self.keras_choice() if self.uses_keras() else None
            backend, _ = keras_setting(lambda: by_code, env)
            keras = KerasInTrials(backend, by_code is not None)
            choice = preload_choice(target, gang, env, sources=sources, keras=keras)
        else:
            choice = PreloadChoice(tuple(preload))
        # A module that executors import makes its settings there.
        settings: Settings = {} if target.reference is not None else _sendable(_changed(target, sources))
        code = pack(target, limit, sources=sources, values=self._values, settings=settings)
        files = fingerprint(target, code, sources=sources)
        check_edited(files)
        return PackedProgram(
            name=target.name,
            code=code,
            parts=files | digests_of(settings),
            preload=choice.modules,
            text=text_of(target),
            notes=(*_taken_over(settings), *choice.notes),
        )


class StoredProgram:
    """The function that a run directory holds: its bytes are never loaded here."""

    def __init__(self, plan: Plan, code: Code) -> None:
        self._plan = plan
        self._code = code
        self.slug = f"{plan.spec['name'][:80]}-refit"

    def check(self, kind: str, space: Space, place: str) -> None:
        """As `FunctionProgram.check`. Knows the names that it takes only where the plan has its source."""
        parameters = self._parameters()
        for name in space.names if parameters is not None else ():
            if parameters is not None and name not in parameters:
                raise SpecError(f"{self._plan.function} has no parameter {name!r}{did_you_mean(name, parameters)}")

    def makes_strategy(self) -> bool:
        """As `FunctionProgram.makes_strategy`. By its source."""
        return any(word in self._plan.text for word in (f".{uses.STRATEGY}(", *uses.OWN_STRATEGIES))

    @cached_property
    def imports(self) -> FrameworkImports:
        """As `FunctionProgram.imports`. By its source, and by what its zygotes import."""
        return framework_imports_in(self._plan.text, self._plan.preload)

    def uses_keras(self) -> bool:
        """As `FunctionProgram.uses_keras`."""
        return self.imports.has_keras

    def keras_choice(self) -> KerasChoice | None:
        """As `FunctionProgram.keras_choice`. By its source."""
        return keras_choice_in(self._plan.text)

    def packed(
        self, gang: GangSpec, env: Mapping[str, str], limit: int, preload: Sequence[str] | None
    ) -> PackedProgram:
        """As `FunctionProgram.packed`. Keras is left to trials, which may run it on another backend than before."""
        plan = self._plan
        return PackedProgram(
            name=plan.function,
            code=self._code,
            parts=plan.parts,
            preload=shared(plan.preload) if preload is None else preload,
            text=plan.text,
        )

    def _parameters(self) -> set[str] | None:
        """The names that it takes; None where its source is not known, or it takes any name."""
        name = self._plan.function.rpartition(":")[2].rpartition(".")[2]
        try:
            definitions = [node for node in ast.walk(ast.parse(self._plan.text)) if isinstance(node, ast.FunctionDef)]
        except SyntaxError:
            return None
        function = next((definition for definition in definitions if definition.name == name), None)
        # The stored bytes are never loaded in the driver, so names are checked by the source alone; where that does not
        # decide, the trial reports it.
        if function is None or function.args.kwarg is not None:
            return None
        return {parameter.arg for parameter in (*function.args.args, *function.args.kwonlyargs)}


def _changed(target: Target, sources: Sources) -> Settings:
    settings = script_settings.changed()
    for module, values in assigned(target.name, sources).items():
        settings[module] = settings.get(module, {}) | values
    return settings


def _sendable(settings: Settings) -> Settings:
    """Those that can be pickled; warns of the others."""
    sendable: Settings = {}
    for library, values in settings.items():
        for name, value in values.items():
            if (cause := _cause(value)) is None:
                sendable.setdefault(library, {})[name] = value
            else:
                logger.warning(
                    "trials do not get %s %s as it is here, so set it in the function: %s", library, name, cause
                )
    return sendable


def _cause(value: object) -> str | None:
    """Why a setting does not travel; None where it does."""
    if isinstance(value, Exception):
        return str(value)
    if type(value) in _PLAIN:
        return None
    if isinstance(value, Assigned) and any(map(is_of_environment, value.texts())):
        return "it has a variable of the environment, which forward_env= passes to trials"
    return None if can_be_pickled(value) else "it cannot be pickled"


def _taken_over(settings: Settings) -> Iterator[str]:
    if texts := "; ".join(script_settings.described(settings)):
        yield f"trials take over the settings of this process: {texts}"


def _texts(space: Space, place: str) -> set[str]:
    """The texts among the values of the first cases of a space. Raises SpecError for the driver's environment."""
    texts: set[str] = set()
    for case in itertools.islice(space.examples(), MOST_CASES):
        for name, value in case.items():
            if isinstance(value, str) and len(value) <= MOST_CHARS:
                texts.add(value)
            elif isinstance(value, str | list | dict) and holds_environment(json.dumps(value).encode()):
                raise SpecError(f"{place}: {name!r} has {A_COPY}")
    return texts
