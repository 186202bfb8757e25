"""What loops.py computes with; anything else goes through torch's own operations."""

import torch

LOOPED = (torch.float32, torch.bfloat16)
