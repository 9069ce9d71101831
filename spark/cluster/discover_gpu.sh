#!/usr/bin/env bash
# Lists this machine's GPUs for Spark: the value of spark.executor.resource.gpu.discoveryScript (see docs/reference/spark-batch.md).
exec "${PYSPARK_PYTHON:-python3}" -m millrace.spark.cluster.discovery gpu
