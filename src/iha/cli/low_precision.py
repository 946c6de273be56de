"""Some virtual machines advertise AMX and trap on it: bfloat16 products then kill the process (SIGILL).

Only a trial shows whether this machine does. A command that is about to use low precision therefore tries once, in a
separate process, and limits oneDNN to instructions below AMX if that process dies. Must run before torch is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

_VARIABLE, _BELOW_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16"
_PROBE = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"


def guard_low_precision(dtype: str, cpuinfo: Path = Path("/proc/cpuinfo"), probe: str = _PROBE) -> bool:
    """Whether oneDNN was limited, which is also reported on stderr. A value set by the user is not changed."""
    if dtype == "float32" or _VARIABLE in os.environ or not _advertises_amx(cpuinfo):
        return False
    if subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode >= 0:
        return False
    os.environ[_VARIABLE] = _BELOW_AMX
    print(f"this machine traps on AMX: running with {_VARIABLE}={_BELOW_AMX}", file=sys.stderr)
    return True


def _advertises_amx(cpuinfo: Path) -> bool:
    return cpuinfo.exists() and "amx_bf16" in cpuinfo.read_text()
