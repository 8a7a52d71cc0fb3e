"""vLLM's own parser for `vllm serve`: command lines in (a JSON list of lists of words on stdin), what each option came to out (a list
of objects).

Needs vllm itself without its compiled parts (pip install --no-deps), torch and transformers. What vllm imports on the way to its
parser and the parser does not use (servers, metrics, grammars) may be missing: stand-ins take its place, and are named on stderr.
"""
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types

# Imported by vllm, not used to parse. What is not listed here and not installed is an error, as it should be.
NOT_USED = {"aiohttp", "cpuinfo", "fastapi", "llguidance", "partial_json_parser", "prometheus_client", "uvloop",
            "xgrammar", "zmq"}


class StandIn(types.ModuleType):
    """A module in which every name is a class that takes anything."""
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__init__": lambda self, *a, **k: None, "__class_getitem__": classmethod(lambda cls, _: cls)})
        setattr(self, name, made)
        return made


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last: whatever is installed comes first."""
    def __init__(self):
        self.made = set()

    def find_spec(self, name, path=None, target=None):
        package = name.split(".")[0]
        if package not in NOT_USED:
            return None
        self.made.add(package)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def main():
    stand_ins = StandIns()
    sys.meta_path.append(stand_ins)
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")  # its defaults ask which device there is
    import vllm
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    names = ("model", "pipeline_parallel_size", "max_model_len", "max_num_seqs", "dtype", "cpu_offload_gb", "gpu_memory_utilization", "quantization")
    parser, answers = EngineArgs.add_cli_args(FlexibleArgumentParser()), []
    for words in json.load(sys.stdin):
        arguments = EngineArgs.from_cli_args(parser.parse_args(words))
        answer = {name: getattr(arguments, name) for name in names}
        answer["knows_quantization"] = arguments.quantization is None or arguments.quantization in QUANTIZATION_METHODS  # it parses any word
        answers.append(answer)
    print(f"vllm {vllm.__version__}; stand-ins for {', '.join(sorted(stand_ins.made)) or 'nothing'}", file=sys.stderr)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
