-- Alert: an overall mean is below a bound on :night, or there is none because no query counted.
-- One row for each data set and run; no rows, no alert. It is what --gate checks, for a table that others wrote.
--
-- :night   the night to look at, as DATE'2026-01-31'
-- :metric  as in the table: 'ndcg'
-- :k       cutoff, 10
-- :bound   0.40
-- Put the name of your metric table in place of prod.ranking_metrics.
SELECT dataset, run, value, ci_low, ci_high, n_queries
FROM prod.ranking_metrics
WHERE run_date = :night
  AND segment_by = ''
  AND metric = :metric
  AND k = :k
  AND (value IS NULL OR value < :bound)
ORDER BY dataset, run
