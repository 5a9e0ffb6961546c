"""Tries gradring with PyTorch on the GPU of this machine: whether it is right, and how fast beside Gloo and NCCL.

    PYTHONPATH=PREFIX/python python3 tests/device/pytorch/check.py --programs PREFIX/bin

Where PREFIX is what tests/device/bundle made, with what tests/device/pytorch/package added. Two ranks share one GPU; daemons
are started on ports of this machine, and ended. Exit status 1: what must be right is not. Figures fail nothing: goals are told.
"""

import argparse
import importlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path

PARTS = {"ops": "ops on tensors of a GPU", "training": "training, beside one process and others",
         "speed": "speed of allreduce, side by side", "latency": "latency of small ops", "overlap": "what exchange adds to a step"}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default")
    parser.add_argument("--programs", type=Path, required=True, help="the folder that gradringd and gradringctl are in")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: by tensors of the host, to try this program")
    parser.add_argument("--quick", action="store_true", help="a size or two, a few times: whether it runs, not how fast")
    parser.add_argument("--nccl", metavar="FILE", help="a libnccl.so.2 to take the place of PyTorch's")
    parser.add_argument("--picture", metavar="FILE", help="where speed is drawn (.svg or .png); needs matplotlib")
    chosen = parser.parse_args()
    if unknown := [part for part in chosen.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    if not (chosen.programs / "gradringd").is_file():
        parser.error(f"there is no gradringd in {chosen.programs}")
    if chosen.nccl and not Path(chosen.nccl).is_file():
        parser.error(f"there is no file {chosen.nccl}")
    return chosen


def missing(device):
    """Why it cannot be tried here; None if it can."""
    try:
        import torch

        import gradring.torch  # noqa: F401
    except ImportError as error:
        return str(error)
    if device == "cuda" and not torch.cuda.is_available():
        return "PyTorch has no GPU here"
    return None


def introduce(device):
    import torch

    import gradring

    gpu = f", {torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}" if device == "cuda" else ""
    print(f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}{gpu}, {os.cpu_count()} processors\n"
          f"gradring {gradring.__path__[0]}")


def run(parts, setting):
    """Whether all were right."""
    from rings import Failed

    failed = []
    for part in parts:
        print(f"\n-- {PARTS[part]}")
        began = time.monotonic()
        try:
            importlib.import_module(part).run(setting)
        except Failed as error:
            failed.append(part)
            print(f"FAILED: {error}")
        except Exception:  # whatever it is, the other parts are tried
            failed.append(part)
            traceback.print_exc(file=sys.stdout)
        print(f"   {time.monotonic() - began:.0f} s")
    print(f"\nFAILED: {', '.join(failed)}" if failed else "\nall that must be right is right")
    return not failed


def main():
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("check.py: ended from outside"))  # daemons are ended then
    chosen = options()
    if why := missing(chosen.device):
        sys.exit(f"check.py: {why}")
    from rings import Setting

    introduce(chosen.device)
    setting = Setting(chosen.programs.resolve(), chosen.device, chosen.quick, chosen.nccl and str(Path(chosen.nccl).resolve()),
                      chosen.picture)
    sys.exit(0 if run(chosen.parts or list(PARTS), setting) else 1)


if __name__ == "__main__":
    main()
