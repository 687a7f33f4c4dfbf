-- Alert: a run that was evaluated in the seven nights before :night has no metrics for :night.
-- One row for each data set and run; no rows, no alert.
--
-- :night  the night to look at, as DATE'2026-01-31'
-- Put the name of your metric table in place of prod.ranking_metrics.
SELECT dataset, run, max(run_date) AS last_night, count(DISTINCT run_date) AS nights_before
FROM prod.ranking_metrics
WHERE run_date BETWEEN date_sub(:night, 7) AND :night
GROUP BY dataset, run
HAVING max(run_date) < :night
ORDER BY dataset, run
