"""What `HdfsStore` and `WebHdfsStore` share: all of the store's contract, over two thin clients.

| module | |
|---|---|
| `client` | what a client must do |
| `errors` | what an error of Hadoop means |
| `calls` | calls of a client: bounded in time, and made again where that helps |
| `files` | files on their way to their name, growing files, and files that are read |
| `store` | the store |
| `tokens` | delegation tokens of this process |
| `conf` | Hadoop's configuration, and what of it executors need |
"""
