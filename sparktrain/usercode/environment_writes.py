"""Which variables of the environment some code may set, from its text or its byte code alone.

A library that reads a variable when it is imported must not be imported before code that sets it. Code that only reads
the variable, or passes it to a process of its own, needs no such care.
"""

import ast
import dis
from types import CodeType

ANY = "*"
"""Stands for variables with names that only a run of the code knows."""

_OBJECTS = frozenset({"environ", "environb"})
_FUNCTIONS = frozenset({"putenv", "unsetenv"})
_READERS = frozenset({"copy", "get", "items", "keys", "values"})
"""Methods that change nothing."""
_BY_NAME = frozenset({"__delitem__", "__setitem__", "pop", "setdefault"})
"""Methods that take the variable as their first argument."""
_COPIES = frozenset({"dict", "frozenset", "len", "list", "set", "sorted", "tuple"})
"""Functions that only read their arguments."""
_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")
_READING = frozenset({"CONTAINS_OP", "DICT_MERGE", "DICT_UPDATE", "GET_ITER"})


class EnvironmentWrites:
    """Collects the variables that one source may set, from its nodes: parents before children."""

    def __init__(self) -> None:
        self.variables: set[str] = set()
        self._names = set(_OBJECTS)
        """What the source calls the environment."""
        self._settled: set[int] = set()
        """The ids of nodes that are the environment, with a use that is decided."""

    def visit(self, node: ast.AST) -> None:
        """Take one node into account."""
        match node:
            case ast.ImportFrom(module="os", names=aliases):
                self._names |= {alias.asname for alias in aliases if alias.name in _OBJECTS and alias.asname}
            case ast.Subscript(value=owner, slice=key, ctx=context) if self._is_environment(owner):
                self._settled.add(id(owner))
                if not isinstance(context, ast.Load):
                    self._add(key)
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if self._is_environment(owner):
                self._settled.add(id(owner))
                self._call(method, node)
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                self._pass(name, node)
            case ast.AugAssign(target=target, value=value) if self._is_environment(target):
                self._settled.add(id(target))
                self._add_entries(value)
            case ast.Compare(left=left, comparators=comparators):
                self._read(left, *comparators)
            case ast.BinOp(left=left, right=right):
                self._read(left, right)
            case ast.Dict(values=values):
                self._read(*values)
            case ast.For(iter=source) | ast.comprehension(iter=source):
                self._read(source)
            case _ if self._is_environment(node) and id(node) not in self._settled:
                self.variables.add(ANY)  # under another name, or in the hands of a function

    def _call(self, method: str, node: ast.Call) -> None:
        """A call of a method of the environment."""
        if method == "update":
            for argument in node.args:
                self._add_entries(argument)
            self.variables.update(keyword.arg or ANY for keyword in node.keywords)
        elif method in _BY_NAME:
            self._add(node.args[0] if node.args else None)
        elif method not in _READERS:
            self.variables.add(ANY)

    def _pass(self, name: str, node: ast.Call) -> None:
        """A call that may have the environment among its arguments."""
        if name in _FUNCTIONS:
            self._add(node.args[0] if node.args else None)
        if name in _COPIES:
            self._read(*node.args)
        # `**os.environ`, and `env=` of a process
        self._read(*(keyword.value for keyword in node.keywords if keyword.arg in (None, "env")))

    def _read(self, *nodes: ast.AST) -> None:
        self._settled.update(id(node) for node in nodes if self._is_environment(node))

    def _add(self, key: ast.AST | None) -> None:
        value = key.value if isinstance(key, ast.Constant) else None
        value = value.decode(errors="replace") if isinstance(value, bytes) else value
        self.variables.add(value if isinstance(value, str) else ANY)

    def _add_entries(self, node: ast.AST) -> None:
        if isinstance(node, ast.Dict):
            for key in node.keys:
                self._add(key)
        else:
            self.variables.add(ANY)

    def _is_environment(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr in _OBJECTS
        return isinstance(node, ast.Name) and node.id in self._names


def written_by(code: CodeType) -> set[str]:
    """The variables that `code` may set, without the functions within it."""
    if not (_OBJECTS | _FUNCTIONS) & {*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars}:
        return set()
    variables: set[str] = set()
    instructions = [entry for entry in dis.get_instructions(code) if entry.opname not in ("CACHE", "PRECALL")]
    padding: list[dis.Instruction | None] = [None, None, None]
    for index, instruction in enumerate(instructions):
        following = [*instructions[index + 1 : index + 4], *padding]
        if instruction.opname == "IMPORT_FROM" and instruction.argval in _OBJECTS:
            stored = following[0].argval if following[0] is not None else None
            variables |= set() if stored == instruction.argval else {ANY}
        elif instruction.opname in _LOADS and instruction.argval in _OBJECTS:
            start = index - 1 if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") else index  # of `os.environ`
            variables |= _written_after(instructions[start - 1] if start > 0 else None, following)
        elif instruction.opname in _LOADS and instruction.argval in _FUNCTIONS:
            variables.add(_constant(following[0]))
    return variables


def _written_after(before: dis.Instruction | None, following: list[dis.Instruction | None]) -> set[str]:
    """The variables that are set by what follows the load of the environment."""
    first, second, *_ = following
    if first is None or first.opname in _READING:
        return set()
    if first.opname in ("LOAD_ATTR", "LOAD_METHOD"):
        if first.argval in _READERS:
            return set()
        return {_constant(second) if first.argval in _BY_NAME else ANY}
    if second is not None and first.opname.startswith("LOAD_"):
        if second.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            return {_constant(first)}
        if second.opname == "BINARY_SUBSCR":
            return set()
    copied = before is not None and before.opname in ("LOAD_GLOBAL", "LOAD_NAME") and before.argval in _COPIES
    return set() if copied else {ANY}


def _constant(instruction: dis.Instruction | None) -> str:
    is_text = instruction is not None and instruction.opname == "LOAD_CONST" and isinstance(instruction.argval, str)
    return str(instruction.argval) if instruction is not None and is_text else ANY
