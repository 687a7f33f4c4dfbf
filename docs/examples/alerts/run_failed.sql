-- Alert: the last run of a command for :night was refused, failed, was interrupted, missed a gate, was flagged with
-- fail-on-flag, or has not ended within :hours. A run that was killed stays `started`. One row for each command and
-- data set; no rows, no alert: a later run that succeeded ends it.
--
-- :night  the night to look at, as DATE'2026-01-31'
-- :hours  how long a run may take, 6; 0 where all jobs of the night are over, as in a task that runs after them
-- Put the name of your run log in place of prod.run_log.
WITH last_runs AS (
  SELECT command, dataset, max_by(struct(run_id, status, exit_code, started_at, message), started_at) AS latest
  FROM prod.run_log
  WHERE run_date = :night
  GROUP BY command, dataset
)
SELECT command, dataset, latest.run_id, latest.status, latest.started_at, latest.message
FROM last_runs
WHERE latest.status NOT IN ('succeeded', 'flagged', 'started')
   OR (latest.status = 'flagged' AND latest.exit_code <> 0)
   OR (latest.status = 'started' AND latest.started_at < now() - make_interval(0, 0, 0, 0, :hours))
ORDER BY command, dataset
