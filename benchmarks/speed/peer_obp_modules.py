"""Empty modules in place of torch and seaborn, which obp imports and what is timed or compared here does not use."""

from __future__ import annotations

import sys
from unittest import mock

for name in ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils", "torch.utils.data", "seaborn"):
    sys.modules[name] = mock.MagicMock()
sys.modules["torch"].Tensor = type("Tensor", (), {})
sys.modules["torch.nn"].Module = type("Module", (), {})
sys.modules["torch"].nn = sys.modules["torch.nn"]
sys.modules["torch"].utils = sys.modules["torch.utils"]
sys.modules["torch.utils"].data = sys.modules["torch.utils.data"]
sys.modules["torch.utils.data"].Dataset = type("Dataset", (), {})
