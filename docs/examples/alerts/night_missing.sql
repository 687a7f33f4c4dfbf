-- Alert: a run that was evaluated before has no metrics for :night.
-- One row for each data set and run; no rows, no alert.
--
-- If the whole data set has no metrics for :night, its runs of the seven nights up to its last one are listed. They are
-- listed every night until there are metrics again, or until you delete the rows of a data set that is given up.
-- If only some runs of the data set have none, these are listed for seven nights: a ranker may have been retired.
-- A job that never started is noticed, too, as this query reads the metric table and no run log. But a data set that
-- has never had metrics is unknown to it.
--
-- :night  the night to look at, as DATE'2026-01-31'
-- Put the name of your metric table in place of prod.ranking_metrics.
WITH runs AS (
  SELECT dataset, run, max(run_date) AS last_night, max(max(run_date)) OVER (PARTITION BY dataset) AS last_of_data_set
  FROM prod.ranking_metrics
  WHERE run_date <= :night
  GROUP BY dataset, run
)
SELECT dataset, run, last_night, datediff(:night, last_night) AS nights_since
FROM runs
WHERE last_night < :night
  AND last_night >= date_sub(last_of_data_set, 7)
ORDER BY dataset, run
