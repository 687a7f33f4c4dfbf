"""Rules about the source: layers, Spark Connect, length of functions, stand-ins. `test_layers.py` applies them.

A file is one idea, as long as that idea takes: there is no rule about its length.

Every rule is a function from one parsed source to a list of findings.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "ndcg_spark"

MAX_FUNCTION_LINES = 45

_STAND_IN = re.compile(r"#\s*stands in for: \S.*, because \S")

ANYTHING = None
HEAVY = frozenset({"numpy", "pandas", "pyarrow", "pyspark", "scipy"})
CLASSIC_ONLY = frozenset({"rdd", "sparkContext", "_jdf", "_jvm", "_jsc"})


@dataclass(frozen=True)
class Layer:
    """Modules on one level: they may import each other, what is below, and `third_party` projects."""

    modules: frozenset[str]
    third_party: frozenset[str] | None


# Top to bottom. A module that is in none of them has to be given a place here.
LAYERS = (
    Layer(frozenset({"cli"}), ANYTHING),
    Layer(
        frozenset(
            {"comparison", "diagnosis", "evaluation", "explanation", "gates", "ml", "mlflow", "reporting", "tables"}
        ),
        ANYTHING,
    ),
    Layer(frozenset({"spark"}), frozenset({"py4j", "pyspark", "numpy", "pandas", "pyarrow"})),
    Layer(frozenset({"worker"}), frozenset({"numpy", "pandas", "pyarrow"})),
    Layer(
        frozenset(
            {"comparison_plan", "conventions", "judgment_plans", "nightly_plans", "plan", "position_plan"}
            | {"retrieval_plan"}
        ),
        frozenset(),
    ),
    Layer(frozenset({"metrics"}), frozenset({"numpy"})),
    Layer(frozenset({"kernels"}), frozenset({"numpy", "scipy"})),
    Layer(frozenset({"errors", "redaction", "references"}), frozenset()),
    Layer(frozenset({"_version"}), frozenset()),
)
# __init__ may import only these when it is itself imported; everything else is looked up when first used.
LIGHT = frozenset({f"{PACKAGE}.errors", f"{PACKAGE}._version"})


@dataclass(frozen=True)
class Source:
    """One parsed file; `module` is its dotted name."""

    module: str
    text: str
    is_package: bool = False

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


# ---------------------------------------------------------------------------------------------------- reading


def module_name(path: Path) -> str:
    parts = path.relative_to(PROJECT_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources_in(*folders: str) -> list[Source]:
    """Every Python file below the folders; a folder that is not there has none."""
    paths = sorted(path for folder in folders for path in (PROJECT_ROOT / folder).rglob("*.py"))
    return [Source(module_name(path), path.read_text("utf-8"), path.name == "__init__.py") for path in paths]


def imported_modules(source: Source, nodes: Iterator[ast.AST] | None = None) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, in functions too; for `from a import b` the name is `a.b`."""
    for node in ast.walk(source.tree) if nodes is None else nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = source.module.split(".")
                n_up = node.level - source.is_package
                base = ".".join([*here[: len(here) - n_up], *filter(None, [base])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def run_at_import(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The statements that importing a module runs: not those of functions, nor those for type checkers."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and is_type_checking(statement.test):
            yield from run_at_import(statement.orelse)
            continue
        yield statement
        for block in ("body", "orelse", "finalbody"):
            yield from run_at_import(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from run_at_import(handler.body)


def level_of(module: str) -> int | None:
    """Index of the layer of `ndcg_spark.a.b`, by its `a`; None if the table has no place for it."""
    part = module.split(".")[1]
    return next((level for level, layer in enumerate(LAYERS) if part in layer.modules), None)


# ------------------------------------------------------------------------------------------------------ rules


def misplaced_modules(source: Source) -> list[str]:
    if source.module == PACKAGE or level_of(source.module) is not None:
        return []
    return [f"{source.module} is in no layer: give it a place in LAYERS"]


def upward_imports(source: Source) -> list[str]:
    """Imports of a higher layer, or of the package itself, whose lazy names reach every layer."""
    if source.module == PACKAGE:
        return []
    own_level = level_of(source.module)
    findings = []
    for line, name in imported_modules(source):
        if name.split(".")[0] != PACKAGE:
            continue
        target_level = level_of(name) if "." in name else None
        if target_level is None:
            findings.append(f"{source.module}:{line} imports {name}, which is a name of the package, not of a layer")
        elif own_level is not None and target_level < own_level:
            findings.append(f"{source.module}:{line} imports {name}, which is above it")
    return findings


def foreign_imports(source: Source) -> list[str]:
    """Imports of other projects that the layer must do without."""
    level = None if source.module == PACKAGE else level_of(source.module)
    if level is None or LAYERS[level].third_party is ANYTHING:
        return []
    allowed = LAYERS[level].third_party | sys.stdlib_module_names | {PACKAGE}
    return [
        f"{source.module}:{line} imports {name}, which its layer must do without"
        for line, name in imported_modules(source)
        if name.split(".")[0] not in allowed
    ]


def heavy_root_imports(source: Source) -> list[str]:
    """What `import ndcg_spark` would load besides the standard library and the light modules."""
    if source.module != PACKAGE:
        return []
    return [
        f"{source.module}:{line} imports {name} at once; look it up in __getattr__"
        for line, name in imported_modules(source, run_at_import(source.tree.body))
        if name.split(".")[0] not in sys.stdlib_module_names
        and not any(name == light or name.startswith(f"{light}.") for light in LIGHT)
    ]


def classic_only_names(source: Source) -> list[str]:
    """Uses of what only a classic Spark session has, as `x.rdd` or `getattr(x, "rdd")`."""
    findings = []
    for node in ast.walk(source.tree):
        name = None
        if isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr"} and len(node.args) > 1:
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
        if name in CLASSIC_ONLY:
            findings.append(f"{source.module}:{node.lineno} uses {name}, which Spark Connect does not have")
    return findings


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring: explaining more must not cost code."""
    n_lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        n_lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return n_lines


def long_functions(source: Source) -> list[str]:
    functions = (n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return [
        f"{source.module}:{f.lineno} {f.name} has {code_lines(f)} lines of code, at most {MAX_FUNCTION_LINES}"
        for f in functions
        if code_lines(f) > MAX_FUNCTION_LINES
    ]


def unpacked_functions(source: Source) -> list[str]:
    """Functions for workers that are not packed by `as_shipped`: a worker without this package would say nothing."""
    return [
        f"{source.module}:{node.lineno}: mapInArrow of something else than as_shipped(...)"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "mapInArrow"
        and not (isinstance(node.args[0], ast.Call) and ast.unparse(node.args[0].func) == "as_shipped")
    ]


def unexplained_stand_ins(source: Source) -> list[str]:
    """Find replacements in tests that answer in place of what this project relies on, with no reason above them.

    A replacement may fail: that is fault injection. It may do something at a moment and pass the call on to what it
    replaces. One that answers by itself hides what the real thing answers, so it needs a comment above it. One is
    enough for several replacements that follow each other:

        # stands in for: THING, because REASON

    These answer for nothing, and need no reason: constants in capitals, such as sizes, limits and cases; variables
    of the environment, the working folder and times of files; a module that is absent (`setitem(sys.modules, ...,
    None)`). `unittest.mock` is not used: its objects answer anything.
    """
    lines, findings = source.text.splitlines(), []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and "unittest.mock" in ast.unparse(node).replace(
            "unittest import mock", "unittest.mock"
        ):
            findings.append(f"{source.module}:{node.lineno} imports unittest.mock: its objects answer anything")
        elif isinstance(node, ast.Call) and _replaces(node) and not _is_explained(lines, node.lineno):
            name, value = _replacement(node)
            if not (name.strip("_").isupper() or _fails(value, source.tree) or _passes_on(value, name, source.tree)):
                findings.append(
                    f"{source.module}:{node.lineno} lets something answer for {name}: use the real thing, let it "
                    "fail, or say above it what it stands in for, and why"
                )
    return findings


def _replaces(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "setattr" and len(call.args) > 1


def _replacement(call: ast.Call) -> tuple[str, ast.expr]:
    """The name that is replaced, without its owner, and what replaces it."""
    named = call.args[-2]
    name = str(named.value) if isinstance(named, ast.Constant) else ast.unparse(named)
    return name.rpartition(".")[2], call.args[-1]


def _is_explained(lines: list[str], number: int) -> bool:
    """Whether the reason stands in the comments above a line, between which and it are other replacements at most."""
    for line in reversed(lines[: number - 1]):
        if _STAND_IN.search(line):
            return True
        if not line.strip().startswith("#") and ".setattr(" not in line:
            return False
    return False


def _bodies(value: ast.expr, tree: ast.Module) -> list[ast.AST]:
    """The functions that a replacement is, of whatever scope; none where it is no function of this file."""
    if isinstance(value, ast.Lambda):
        return [value]
    named = ast.unparse(value)
    return [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == named]


def _fails(value: ast.expr, tree: ast.Module) -> bool:
    return any(isinstance(node, ast.Raise) for body in _bodies(value, tree) for node in ast.walk(body))


def _passes_on(value: ast.expr, name: str, tree: ast.Module) -> bool:
    """Whether a replacement calls what it replaces, by the name under which the file has kept that."""
    kept: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets, values = (
                one.elts if isinstance(one, ast.Tuple) else [one] for one in (node.targets[0], node.value)
            )
            pairs = zip(targets, values, strict=False)
            kept |= {ast.unparse(one) for one, its in pairs if isinstance(its, ast.Attribute) and its.attr == name}
    calls = (node for body in _bodies(value, tree) for node in ast.walk(body) if isinstance(node, ast.Call))
    return ast.unparse(value) in kept or any(ast.unparse(call.func) in kept for call in calls)


LAYER_RULES = (
    misplaced_modules,
    upward_imports,
    foreign_imports,
    heavy_root_imports,
    classic_only_names,
    unpacked_functions,
)
SIZE_RULES = (long_functions,)
TEST_RULES = (unexplained_stand_ins,)
