"""What TensorFlow gives the data of a member: see `sparktrain.training.frameworks.contract.Framework.data`."""

from sparktrain.training.frameworks.tensorflow.data.row_feed import row_feed as row_feed
from sparktrain.training.frameworks.tensorflow.data.shard import shard as shard
from sparktrain.training.frameworks.tensorflow.data.stream_feed import stream_feed as stream_feed
