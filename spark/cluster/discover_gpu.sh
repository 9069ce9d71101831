#!/usr/bin/env bash
# Lists this machine's GPUs for Spark: the value of spark.executor.resource.gpu.discoveryScript (see docs/spark.md).
exec "${PYSPARK_PYTHON:-python3}" -m millrace.spark.cluster.discovery gpu
