#!/usr/bin/env bash
# A night on Kubernetes: KUBERNETES_API=https://10.0.0.1:6443 spark_submit_kubernetes.sh 2026-01-31
#
# The image is one of Spark with Python. The wheel is installed in it with the extra `report`, and jobs/nightly.py and
# night_tables.toml are in /opt/ndcg-spark. The driver runs in the cluster; its page is lost with its pod, unless the
# file names a mounted folder. spark-submit ends with 0 whatever the driver ended with (SPARK-26365), so this script asks
# kubectl, which must reach the same cluster, for the exit code of the driver and ends with it: 0 done, 2 refused, 3 a
# gate was not met, 137 killed, often for its memory. Without an answer it ends with 1.
set -euo pipefail
night=${1:?usage: spark_submit_kubernetes.sh YYYY-MM-DD [options of nightly]}
shift
submission=$night-$(date +%s)-$RANDOM # a label by which the driver is found

# spark.sql.catalogImplementation=hive: tables of the Hive metastore in hive-site.xml. Clusters with an Iceberg, Delta
# or Glue catalog set theirs instead (docs/clusters.md, Catalog tables).
spark-submit \
    --master "k8s://${KUBERNETES_API:?address of the API server, such as https://10.0.0.1:6443}" \
    --deploy-mode cluster \
    --name "ranking-metrics-$night" \
    --conf spark.kubernetes.namespace=ranking \
    --conf spark.kubernetes.container.image="${NDCG_SPARK_IMAGE:-registry.example.com/ndcg-spark:latest}" \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
    --conf spark.kubernetes.driver.label.submission="$submission" \
    --conf spark.kubernetes.submission.waitAppCompletion=true \
    --conf spark.executor.instances=8 \
    --conf spark.executor.cores=4 \
    --conf spark.executor.memory=8g \
    --conf spark.executor.memoryOverhead=4g \
    --conf spark.driver.memory=4g \
    --conf spark.sql.catalogImplementation=hive \
    --conf spark.sql.session.timeZone=UTC \
    --conf spark.sql.execution.arrow.maxBytesPerBatch=2147483647 \
    local:///opt/ndcg-spark/jobs/nightly.py \
    --config /opt/ndcg-spark/night_tables.toml \
    --log-format json \
    --run-date "$night" \
    "$@"

# By its name, as a mesh may add other containers to the pod.
driver='.items[0].status.containerStatuses[?(@.name=="spark-kubernetes-driver")]'
code=$(kubectl get pods --namespace ranking --selector "submission=$submission" \
    --output "jsonpath={$driver.state.terminated.exitCode}") || code=
[[ -n $code ]] || echo "spark_submit_kubernetes.sh: the exit code of the driver is not known" >&2
exit "${code:-1}"
