-- Alert: a rule left out more than a share of the rows on :night, such as rows of queries without judgments.
-- One row for each data set and run; no rows, no alert. Rejected (bad) rows are in the run log: rows_rejected.sql.
--
-- :night  the night to look at, as DATE'2026-01-31'
-- :share  0.05 for 5 %
-- Put the name of your metric table in place of prod.ranking_metrics.
SELECT dataset, run, max(n_left_out) AS n_left_out, max(n_left_out / (n_rows + n_left_out)) AS share
FROM prod.ranking_metrics
WHERE run_date = :night
  AND segment_by = ''
  AND n_rows + n_left_out > 0
GROUP BY dataset, run
HAVING max(n_left_out / (n_rows + n_left_out)) > :share
ORDER BY dataset, run
