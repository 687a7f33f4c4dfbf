-- Alert: an overall mean is far below those of the 28 nights before.
-- Far: more than three standard deviations of these nights, and more than :least_drop. Only nights with the same
-- config_hash are compared, and there must be at least seven. One row for each data set and run; no rows, no alert.
-- `ndcg-spark flag-changes` is the more careful form: robust to outliers, and for segments and other metrics, too.
--
-- :night       the night to look at, as DATE'2026-01-31'
-- :metric      as in the table: 'ndcg'
-- :k           cutoff, 10
-- :least_drop  the smallest drop that matters, 0.005
-- Put the name of your metric table in place of prod.ranking_metrics.
WITH nights AS (
  SELECT dataset, run, config_hash, run_date, value
  FROM prod.ranking_metrics
  WHERE run_date BETWEEN date_sub(:night, 28) AND :night
    AND segment_by = ''
    AND metric = :metric
    AND k = :k
    AND value IS NOT NULL
),
usual AS (
  SELECT dataset, run, config_hash, count(*) AS n_nights, avg(value) AS mean, stddev_samp(value) AS deviation
  FROM nights
  WHERE run_date < :night
  GROUP BY dataset, run, config_hash
  HAVING count(*) >= 7
)
SELECT dataset, run, nights.value, usual.mean, usual.deviation, usual.n_nights
FROM nights JOIN usual USING (dataset, run, config_hash)
WHERE nights.run_date = :night
  AND usual.mean - nights.value > greatest(3 * usual.deviation, :least_drop)
ORDER BY dataset, run
