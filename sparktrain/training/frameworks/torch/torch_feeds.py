"""What PyTorch gives the data of a member: see `sparktrain.training.frameworks.contract.Framework.data`."""

from sparktrain.training.frameworks.torch.torch_batches import row_feed as row_feed
from sparktrain.training.frameworks.torch.torch_loader import shard as shard
