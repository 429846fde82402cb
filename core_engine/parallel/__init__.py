"""One model over several processes: tensor parallelism inside a layer, pipeline parallelism over layers."""

__all__ = ["child", "executor", "guard", "messages", "processes", "progress", "shards", "told"]
