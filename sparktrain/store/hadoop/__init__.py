"""Stores in HDFS. `HdfsStore` and `WebHdfsStore` share the whole contract of a store, over two thin clients.

| module | |
|---|---|
| `client` | the interface of a client |
| `hadoop_errors` | classifies and explains Hadoop's errors |
| `hadoop_calls` | calls of a client, with timeouts and retries |
| `transfers` | unpublished files, and files that are read |
| `hdfs_stream` | logs that grow |
| `hadoop_store`, `hdfs`, `webhdfs` | the stores; logs that grow over gateways |
| `token_file` | delegation tokens of this process |
| `hadoop_conf` | Hadoop's configuration and what executors need of it; host names |
"""
