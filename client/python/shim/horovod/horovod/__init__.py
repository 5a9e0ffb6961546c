"""gradring under Horovod's module names: `import horovod.torch as hvd` is `import gradring.torch as hvd`.

horovod.X is gradring.X, the very same module, for every X that gradring has; horovod.X.mpi_ops is gradring.X. Beside
these there is horovod.common, as far as scripts ask it. The version is that of the Horovod whose names these are.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys

__version__ = "0.28.1"


def _ours(name: str) -> str:
    return "gradring" + name.removeprefix("horovod").removesuffix(".mpi_ops")


class _Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("horovod.") or fullname.split(".")[1] == "common":
            return None
        try:
            found = importlib.util.find_spec(_ours(fullname))
        except ModuleNotFoundError:
            return None
        return found and importlib.machinery.ModuleSpec(fullname, self, loader_state=found)

    def create_module(self, spec):
        module = importlib.import_module(_ours(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        name = module.__spec__.name
        module.__spec__ = module.__spec__.loader_state  # it stays what it is
        if name in ("horovod.torch", "horovod.tensorflow"):
            module.mpi_ops = module  # there without an import of its own, as in Horovod


def __getattr__(name):
    """What gradring has at the top, such as `run`."""
    return getattr(importlib.import_module("gradring"), name)


if not any(type(one).__qualname__ == _Aliases.__qualname__ and type(one).__module__ == __name__
           for one in sys.meta_path):
    sys.meta_path.insert(0, _Aliases())
