-- Ranking metrics as SQL functions, for Spark 4.0 and later and for Databricks.
--
--   SELECT query_id, ndcg_list(collect_list(struct(score, relevance)), 10) FROM rankings GROUP BY query_id
--
-- A list holds structs of score and relevance. Mind their order: Spark takes fields by their place, not their name.
-- A list is ranked by score; items of one score count as the average of their orders (ties 'expected'; or 'best',
-- 'worst'). A null score is a judged item that was not retrieved, a null relevance an unjudged item. The result is
-- null where nothing is judged. A cutoff k of null is the whole list.
--
-- Create the functions with spark.sql.ansi.enabled on, as it is by default: they keep what is set then, and without
-- it text that is no number would be null.
--
-- Of arrays of relevances in rank order make lists first; Spark takes no lambda among the arguments of a function:
--   WITH made AS (SELECT transform(ranked, (rel, i) -> struct(-i, rel)) AS list FROM arrays)
--   SELECT ndcg_list(list, 10) FROM made

CREATE OR REPLACE FUNCTION ndcg_list(
  list ARRAY<STRUCT<score: DOUBLE, relevance: DOUBLE>>,
  k INT DEFAULT NULL,
  gain STRING DEFAULT 'exponential',
  ties STRING DEFAULT 'expected'
)
RETURNS DOUBLE
RETURN
  if(
    gain IS NULL,
    raise_error(concat('gain must be one of exponential, linear, binary; got ', coalesce(gain, 'null'), '.')),
    if(
      k < 1,
      raise_error(
        concat(
          'k must be a whole number from 1 on, or null for the whole list; got ',
          coalesce(string(k), 'null'),
          '.'
        )
      ),
      if(
        ties IS NULL OR ties NOT IN ('expected', 'best', 'worst'),
        raise_error(concat('ties must be one of expected, best, worst; got ', coalesce(ties, 'null'), '.')),
        element_at(
          transform(
            array(
              transform(
                transform(
                  list,
                  one -> if(
                    (
                      (
                        (abs(one.score) > 1.7976931348623157e+308D) OR (abs(one.relevance) > 9.223372036854776e+18D)
                      ) OR ((gain = 'exponential') AND (one.relevance > 63.0D))
                    ),
                    raise_error(
                      concat(
                        'bad value in the list: score ',
                        regexp_replace(string(one.score), '[.]0\u0024', ''),
                        ', relevance ',
                        regexp_replace(string(one.relevance), '[.]0\u0024', ''),
                        '; it must be finite, and a gain at most 2^63.'
                      )
                    ),
                    one
                  )
                ),
                one -> named_struct(
                  'score',
                  one.score,
                  'gain',
                  if(
                    (gain = 'binary'),
                    if((one.relevance > 0.0D), 1.0D, (one.relevance * 0.0D)),
                    if(
                      (gain = 'linear'),
                      one.relevance,
                      if(
                        (gain = 'exponential'),
                        (pow(2.0D, one.relevance) - 1.0D),
                        raise_error(
                          concat('gain must be one of exponential, linear, binary; got ', gain, '.')
                        )
                      )
                    )
                  )
                )
              )
            ),
            one -> coalesce(
              (
                aggregate(
                  sort_array(
                    transform(
                      element_at(
                        transform(
                          array(
                            array_min(
                              slice(
                                sort_array(
                                  transform(one.score, one_1 -> coalesce(one_1, -1.7976931348623157e+308D)),
                                  FALSE
                                ),
                                1,
                                coalesce(k, 2147483647)
                              )
                            )
                          ),
                          one_1 -> filter(one, one_2 -> (one_2.score >= one_1))
                        ),
                        1
                      ),
                      one_1 -> named_struct(
                        'score',
                        one_1.score,
                        'gain',
                        (if((ties = 'worst'), -1.0D, 1.0D) * coalesce(one_1.gain, 0.0D))
                      )
                    ),
                    FALSE
                  ),
                  named_struct(
                    'score',
                    CAST(NULL AS DOUBLE),
                    'rank',
                    0,
                    'n',
                    1,
                    'gain',
                    0.0D,
                    'before',
                    0.0D,
                    'total',
                    0.0D,
                    'weight_0',
                    0.0D
                  ),
                  (at, one_1) -> named_struct(
                    'score',
                    one_1.score,
                    'rank',
                    (at.rank + 1),
                    'n',
                    (if(coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE), at.n, 0) + 1),
                    'gain',
                    (
                      if(
                        coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                        at.gain,
                        0.0D
                      ) + (if((ties = 'worst'), -1.0D, 1.0D) * one_1.gain)
                    ),
                    'before',
                    if(
                      coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                      at.before,
                      (at.before + at.gain)
                    ),
                    'total',
                    if(
                      coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                      at.total,
                      (at.total + ((at.gain * at.weight_0) / at.n))
                    ),
                    'weight_0',
                    (
                      if(
                        coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                        at.weight_0,
                        0.0D
                      ) + if(
                        ((at.rank + 1) <= coalesce(k, 2147483647)),
                        (1.0D / log2(((at.rank + 1) + 1))),
                        0.0D
                      )
                    )
                  ),
                  at -> (at.total + ((at.gain * at.weight_0) / at.n))
                ) / array_max(
                  filter(
                    array(
                      aggregate(
                        transform(
                          filter(
                            slice(
                              sort_array(
                                transform(one.gain, one_1 -> coalesce(one_1, -1.7976931348623157e+308D)),
                                FALSE
                              ),
                              1,
                              coalesce(k, 2147483647)
                            ),
                            gain -> (gain > -1.7976931348623157e+308D)
                          ),
                          (gain, place) -> (gain * (1.0D / log2(((place + 1) + 1))))
                        ),
                        0.0D,
                        (total, one_1) -> (total + coalesce(one_1, 0.0D)),
                        total -> total
                      )
                    ),
                    one_1 -> (one_1 > 0.0D)
                  )
                )
              ),
              if(isnotnull(array_max(one.gain)), 0.0D, CAST(NULL AS DOUBLE))
            )
          ),
          1
        )
      )
    )
  );

CREATE OR REPLACE FUNCTION dcg_list(
  list ARRAY<STRUCT<score: DOUBLE, relevance: DOUBLE>>,
  k INT DEFAULT NULL,
  gain STRING DEFAULT 'exponential',
  ties STRING DEFAULT 'expected'
)
RETURNS DOUBLE
RETURN
  if(
    gain IS NULL,
    raise_error(concat('gain must be one of exponential, linear, binary; got ', coalesce(gain, 'null'), '.')),
    if(
      k < 1,
      raise_error(
        concat(
          'k must be a whole number from 1 on, or null for the whole list; got ',
          coalesce(string(k), 'null'),
          '.'
        )
      ),
      if(
        ties IS NULL OR ties NOT IN ('expected', 'best', 'worst'),
        raise_error(concat('ties must be one of expected, best, worst; got ', coalesce(ties, 'null'), '.')),
        element_at(
          transform(
            array(
              transform(
                transform(
                  list,
                  one -> if(
                    (
                      (
                        (abs(one.score) > 1.7976931348623157e+308D) OR (abs(one.relevance) > 9.223372036854776e+18D)
                      ) OR ((gain = 'exponential') AND (one.relevance > 63.0D))
                    ),
                    raise_error(
                      concat(
                        'bad value in the list: score ',
                        regexp_replace(string(one.score), '[.]0\u0024', ''),
                        ', relevance ',
                        regexp_replace(string(one.relevance), '[.]0\u0024', ''),
                        '; it must be finite, and a gain at most 2^63.'
                      )
                    ),
                    one
                  )
                ),
                one -> named_struct(
                  'score',
                  one.score,
                  'gain',
                  if(
                    (gain = 'binary'),
                    if((one.relevance > 0.0D), 1.0D, (one.relevance * 0.0D)),
                    if(
                      (gain = 'linear'),
                      one.relevance,
                      if(
                        (gain = 'exponential'),
                        (pow(2.0D, one.relevance) - 1.0D),
                        raise_error(
                          concat('gain must be one of exponential, linear, binary; got ', gain, '.')
                        )
                      )
                    )
                  )
                )
              )
            ),
            one -> if(
              isnotnull(array_max(one.gain)),
              aggregate(
                sort_array(
                  transform(
                    element_at(
                      transform(
                        array(
                          array_min(
                            slice(
                              sort_array(
                                transform(one.score, one_1 -> coalesce(one_1, -1.7976931348623157e+308D)),
                                FALSE
                              ),
                              1,
                              coalesce(k, 2147483647)
                            )
                          )
                        ),
                        one_1 -> filter(one, one_2 -> (one_2.score >= one_1))
                      ),
                      1
                    ),
                    one_1 -> named_struct(
                      'score',
                      one_1.score,
                      'gain',
                      (if((ties = 'worst'), -1.0D, 1.0D) * coalesce(one_1.gain, 0.0D))
                    )
                  ),
                  FALSE
                ),
                named_struct(
                  'score',
                  CAST(NULL AS DOUBLE),
                  'rank',
                  0,
                  'n',
                  1,
                  'gain',
                  0.0D,
                  'before',
                  0.0D,
                  'total',
                  0.0D,
                  'weight_0',
                  0.0D
                ),
                (at, one_1) -> named_struct(
                  'score',
                  one_1.score,
                  'rank',
                  (at.rank + 1),
                  'n',
                  (if(coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE), at.n, 0) + 1),
                  'gain',
                  (
                    if(
                      coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                      at.gain,
                      0.0D
                    ) + (if((ties = 'worst'), -1.0D, 1.0D) * one_1.gain)
                  ),
                  'before',
                  if(
                    coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                    at.before,
                    (at.before + at.gain)
                  ),
                  'total',
                  if(
                    coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                    at.total,
                    (at.total + ((at.gain * at.weight_0) / at.n))
                  ),
                  'weight_0',
                  (
                    if(
                      coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                      at.weight_0,
                      0.0D
                    ) + if(
                      ((at.rank + 1) <= coalesce(k, 2147483647)),
                      (1.0D / log2(((at.rank + 1) + 1))),
                      0.0D
                    )
                  )
                ),
                at -> (at.total + ((at.gain * at.weight_0) / at.n))
              ),
              CAST(NULL AS DOUBLE)
            )
          ),
          1
        )
      )
    )
  );

CREATE OR REPLACE FUNCTION precision_list(
  list ARRAY<STRUCT<score: DOUBLE, relevance: DOUBLE>>,
  k INT DEFAULT NULL,
  rel DOUBLE DEFAULT 1,
  ties STRING DEFAULT 'expected'
)
RETURNS DOUBLE
RETURN
  if(
    rel IS NULL OR NOT abs(rel) <= 1.7976931348623157e+308D,
    raise_error(concat('rel must be a finite number; got ', coalesce(string(rel), 'null'), '.')),
    if(
      k < 1,
      raise_error(
        concat(
          'k must be a whole number from 1 on, or null for the whole list; got ',
          coalesce(string(k), 'null'),
          '.'
        )
      ),
      if(
        ties IS NULL OR ties NOT IN ('expected', 'best', 'worst'),
        raise_error(concat('ties must be one of expected, best, worst; got ', coalesce(ties, 'null'), '.')),
        element_at(
          transform(
            array(
              transform(
                transform(
                  list,
                  one -> if(
                    (
                      (abs(one.score) > 1.7976931348623157e+308D) OR (abs(one.relevance) > 9.223372036854776e+18D)
                    ),
                    raise_error(
                      concat(
                        'bad value in the list: score ',
                        regexp_replace(string(one.score), '[.]0\u0024', ''),
                        ', relevance ',
                        regexp_replace(string(one.relevance), '[.]0\u0024', ''),
                        '; it must be finite, and a gain at most 2^63.'
                      )
                    ),
                    one
                  )
                ),
                one -> named_struct(
                  'score',
                  one.score,
                  'gain',
                  if((one.relevance >= rel), 1.0D, (one.relevance * 0.0D))
                )
              )
            ),
            one -> if(
              isnotnull(array_max(one.gain)),
              coalesce(
                (
                  aggregate(
                    sort_array(
                      transform(
                        element_at(
                          transform(
                            array(
                              array_min(
                                slice(
                                  sort_array(
                                    transform(one.score, one_1 -> coalesce(one_1, -1.7976931348623157e+308D)),
                                    FALSE
                                  ),
                                  1,
                                  coalesce(k, 2147483647)
                                )
                              )
                            ),
                            one_1 -> filter(one, one_2 -> (one_2.score >= one_1))
                          ),
                          1
                        ),
                        one_1 -> named_struct(
                          'score',
                          one_1.score,
                          'gain',
                          (if((ties = 'worst'), -1.0D, 1.0D) * coalesce(one_1.gain, 0.0D))
                        )
                      ),
                      FALSE
                    ),
                    named_struct(
                      'score',
                      CAST(NULL AS DOUBLE),
                      'rank',
                      0,
                      'n',
                      1,
                      'gain',
                      0.0D,
                      'before',
                      0.0D,
                      'total',
                      0.0D,
                      'weight_0',
                      0.0D
                    ),
                    (at, one_1) -> named_struct(
                      'score',
                      one_1.score,
                      'rank',
                      (at.rank + 1),
                      'n',
                      (if(coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE), at.n, 0) + 1),
                      'gain',
                      (
                        if(
                          coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                          at.gain,
                          0.0D
                        ) + (if((ties = 'worst'), -1.0D, 1.0D) * one_1.gain)
                      ),
                      'before',
                      if(
                        coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                        at.before,
                        (at.before + at.gain)
                      ),
                      'total',
                      if(
                        coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                        at.total,
                        (at.total + ((at.gain * at.weight_0) / at.n))
                      ),
                      'weight_0',
                      (
                        if(
                          coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                          at.weight_0,
                          0.0D
                        ) + if(((at.rank + 1) <= coalesce(k, 2147483647)), 1.0D, 0.0D)
                      )
                    ),
                    at -> (at.total + ((at.gain * at.weight_0) / at.n))
                  ) / array_max(
                    filter(
                      array(
                        if(
                          (coalesce(k, 2147483647) = 2147483647),
                          size(
                            sort_array(
                              transform(
                                element_at(
                                  transform(
                                    array(
                                      array_min(
                                        slice(
                                          sort_array(
                                            transform(
                                              one.score,
                                              one_1 -> coalesce(one_1, -1.7976931348623157e+308D)
                                            ),
                                            FALSE
                                          ),
                                          1,
                                          coalesce(k, 2147483647)
                                        )
                                      )
                                    ),
                                    one_1 -> filter(one, one_2 -> (one_2.score >= one_1))
                                  ),
                                  1
                                ),
                                one_1 -> named_struct(
                                  'score',
                                  one_1.score,
                                  'gain',
                                  (if((ties = 'worst'), -1.0D, 1.0D) * coalesce(one_1.gain, 0.0D))
                                )
                              ),
                              FALSE
                            )
                          ),
                          coalesce(k, 2147483647)
                        )
                      ),
                      one_1 -> (one_1 > 0.0D)
                    )
                  )
                ),
                0.0D
              ),
              CAST(NULL AS DOUBLE)
            )
          ),
          1
        )
      )
    )
  );

CREATE OR REPLACE FUNCTION recall_list(
  list ARRAY<STRUCT<score: DOUBLE, relevance: DOUBLE>>,
  k INT DEFAULT NULL,
  rel DOUBLE DEFAULT 1,
  ties STRING DEFAULT 'expected'
)
RETURNS DOUBLE
RETURN
  if(
    rel IS NULL OR NOT abs(rel) <= 1.7976931348623157e+308D,
    raise_error(concat('rel must be a finite number; got ', coalesce(string(rel), 'null'), '.')),
    if(
      k < 1,
      raise_error(
        concat(
          'k must be a whole number from 1 on, or null for the whole list; got ',
          coalesce(string(k), 'null'),
          '.'
        )
      ),
      if(
        ties IS NULL OR ties NOT IN ('expected', 'best', 'worst'),
        raise_error(concat('ties must be one of expected, best, worst; got ', coalesce(ties, 'null'), '.')),
        element_at(
          transform(
            array(
              transform(
                transform(
                  list,
                  one -> if(
                    (
                      (abs(one.score) > 1.7976931348623157e+308D) OR (abs(one.relevance) > 9.223372036854776e+18D)
                    ),
                    raise_error(
                      concat(
                        'bad value in the list: score ',
                        regexp_replace(string(one.score), '[.]0\u0024', ''),
                        ', relevance ',
                        regexp_replace(string(one.relevance), '[.]0\u0024', ''),
                        '; it must be finite, and a gain at most 2^63.'
                      )
                    ),
                    one
                  )
                ),
                one -> named_struct(
                  'score',
                  one.score,
                  'gain',
                  if((one.relevance >= rel), 1.0D, (one.relevance * 0.0D))
                )
              )
            ),
            one -> coalesce(
              (
                aggregate(
                  sort_array(
                    transform(
                      element_at(
                        transform(
                          array(
                            array_min(
                              slice(
                                sort_array(
                                  transform(one.score, one_1 -> coalesce(one_1, -1.7976931348623157e+308D)),
                                  FALSE
                                ),
                                1,
                                coalesce(k, 2147483647)
                              )
                            )
                          ),
                          one_1 -> filter(one, one_2 -> (one_2.score >= one_1))
                        ),
                        1
                      ),
                      one_1 -> named_struct(
                        'score',
                        one_1.score,
                        'gain',
                        (if((ties = 'worst'), -1.0D, 1.0D) * coalesce(one_1.gain, 0.0D))
                      )
                    ),
                    FALSE
                  ),
                  named_struct(
                    'score',
                    CAST(NULL AS DOUBLE),
                    'rank',
                    0,
                    'n',
                    1,
                    'gain',
                    0.0D,
                    'before',
                    0.0D,
                    'total',
                    0.0D,
                    'weight_0',
                    0.0D
                  ),
                  (at, one_1) -> named_struct(
                    'score',
                    one_1.score,
                    'rank',
                    (at.rank + 1),
                    'n',
                    (if(coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE), at.n, 0) + 1),
                    'gain',
                    (
                      if(
                        coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                        at.gain,
                        0.0D
                      ) + (if((ties = 'worst'), -1.0D, 1.0D) * one_1.gain)
                    ),
                    'before',
                    if(
                      coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                      at.before,
                      (at.before + at.gain)
                    ),
                    'total',
                    if(
                      coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                      at.total,
                      (at.total + ((at.gain * at.weight_0) / at.n))
                    ),
                    'weight_0',
                    (
                      if(
                        coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                        at.weight_0,
                        0.0D
                      ) + if(((at.rank + 1) <= coalesce(k, 2147483647)), 1.0D, 0.0D)
                    )
                  ),
                  at -> (at.total + ((at.gain * at.weight_0) / at.n))
                ) / array_max(
                  filter(
                    array(
                      aggregate(
                        one.gain,
                        0.0D,
                        (total, one_1) -> (total + coalesce(one_1, 0.0D)),
                        total -> total
                      )
                    ),
                    one_1 -> (one_1 > 0.0D)
                  )
                )
              ),
              if(isnotnull(array_max(one.gain)), 0.0D, CAST(NULL AS DOUBLE))
            )
          ),
          1
        )
      )
    )
  );

CREATE OR REPLACE FUNCTION average_precision_list(
  list ARRAY<STRUCT<score: DOUBLE, relevance: DOUBLE>>,
  k INT DEFAULT NULL,
  rel DOUBLE DEFAULT 1,
  ties STRING DEFAULT 'expected'
)
RETURNS DOUBLE
RETURN
  if(
    rel IS NULL OR NOT abs(rel) <= 1.7976931348623157e+308D,
    raise_error(concat('rel must be a finite number; got ', coalesce(string(rel), 'null'), '.')),
    if(
      k < 1,
      raise_error(
        concat(
          'k must be a whole number from 1 on, or null for the whole list; got ',
          coalesce(string(k), 'null'),
          '.'
        )
      ),
      if(
        ties IS NULL OR ties NOT IN ('expected', 'best', 'worst'),
        raise_error(concat('ties must be one of expected, best, worst; got ', coalesce(ties, 'null'), '.')),
        element_at(
          transform(
            array(
              transform(
                transform(
                  list,
                  one -> if(
                    (
                      (abs(one.score) > 1.7976931348623157e+308D) OR (abs(one.relevance) > 9.223372036854776e+18D)
                    ),
                    raise_error(
                      concat(
                        'bad value in the list: score ',
                        regexp_replace(string(one.score), '[.]0\u0024', ''),
                        ', relevance ',
                        regexp_replace(string(one.relevance), '[.]0\u0024', ''),
                        '; it must be finite, and a gain at most 2^63.'
                      )
                    ),
                    one
                  )
                ),
                one -> named_struct(
                  'score',
                  one.score,
                  'gain',
                  if((one.relevance >= rel), 1.0D, (one.relevance * 0.0D))
                )
              )
            ),
            one -> coalesce(
              (
                aggregate(
                  sort_array(
                    transform(
                      element_at(
                        transform(
                          array(
                            array_min(
                              slice(
                                sort_array(
                                  transform(one.score, one_1 -> coalesce(one_1, -1.7976931348623157e+308D)),
                                  FALSE
                                ),
                                1,
                                coalesce(k, 2147483647)
                              )
                            )
                          ),
                          one_1 -> filter(one, one_2 -> (one_2.score >= one_1))
                        ),
                        1
                      ),
                      one_1 -> named_struct(
                        'score',
                        one_1.score,
                        'gain',
                        (if((ties = 'worst'), -1.0D, 1.0D) * coalesce(one_1.gain, 0.0D))
                      )
                    ),
                    FALSE
                  ),
                  named_struct(
                    'score',
                    CAST(NULL AS DOUBLE),
                    'rank',
                    0,
                    'n',
                    1,
                    'gain',
                    0.0D,
                    'before',
                    0.0D,
                    'total',
                    0.0D,
                    'weight_0',
                    0.0D,
                    'weight_1',
                    0.0D
                  ),
                  (at, one_1) -> named_struct(
                    'score',
                    one_1.score,
                    'rank',
                    (at.rank + 1),
                    'n',
                    (if(coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE), at.n, 0) + 1),
                    'gain',
                    (
                      if(
                        coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                        at.gain,
                        0.0D
                      ) + (if((ties = 'worst'), -1.0D, 1.0D) * one_1.gain)
                    ),
                    'before',
                    if(
                      coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                      at.before,
                      (at.before + at.gain)
                    ),
                    'total',
                    if(
                      coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                      at.total,
                      (
                        at.total + (
                          (
                            at.gain * (
                              ((at.before + 1.0D) * at.weight_0) + (
                                ((at.gain - 1.0D) * at.weight_1) / greatest((at.n - 1), 1)
                              )
                            )
                          ) / at.n
                        )
                      )
                    ),
                    'weight_0',
                    (
                      if(
                        coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                        at.weight_0,
                        0.0D
                      ) + if(
                        ((at.rank + 1) <= coalesce(k, 2147483647)),
                        (1.0D / (at.rank + 1)),
                        0.0D
                      )
                    ),
                    'weight_1',
                    (
                      if(
                        coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                        at.weight_1,
                        0.0D
                      ) + if(
                        ((at.rank + 1) <= coalesce(k, 2147483647)),
                        (
                          if(
                            coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                            at.n,
                            0
                          ) / (at.rank + 1)
                        ),
                        0.0D
                      )
                    )
                  ),
                  at -> (
                    at.total + (
                      (
                        at.gain * (
                          ((at.before + 1.0D) * at.weight_0) + (
                            ((at.gain - 1.0D) * at.weight_1) / greatest((at.n - 1), 1)
                          )
                        )
                      ) / at.n
                    )
                  )
                ) / array_max(
                  filter(
                    array(
                      aggregate(
                        one.gain,
                        0.0D,
                        (total, one_1) -> (total + coalesce(one_1, 0.0D)),
                        total -> total
                      )
                    ),
                    one_1 -> (one_1 > 0.0D)
                  )
                )
              ),
              if(isnotnull(array_max(one.gain)), 0.0D, CAST(NULL AS DOUBLE))
            )
          ),
          1
        )
      )
    )
  );

CREATE OR REPLACE FUNCTION reciprocal_rank_list(
  list ARRAY<STRUCT<score: DOUBLE, relevance: DOUBLE>>,
  k INT DEFAULT NULL,
  rel DOUBLE DEFAULT 1,
  ties STRING DEFAULT 'expected'
)
RETURNS DOUBLE
RETURN
  if(
    rel IS NULL OR NOT abs(rel) <= 1.7976931348623157e+308D,
    raise_error(concat('rel must be a finite number; got ', coalesce(string(rel), 'null'), '.')),
    if(
      k < 1,
      raise_error(
        concat(
          'k must be a whole number from 1 on, or null for the whole list; got ',
          coalesce(string(k), 'null'),
          '.'
        )
      ),
      if(
        ties IS NULL OR ties NOT IN ('expected', 'best', 'worst'),
        raise_error(concat('ties must be one of expected, best, worst; got ', coalesce(ties, 'null'), '.')),
        element_at(
          transform(
            array(
              transform(
                transform(
                  list,
                  one -> if(
                    (
                      (abs(one.score) > 1.7976931348623157e+308D) OR (abs(one.relevance) > 9.223372036854776e+18D)
                    ),
                    raise_error(
                      concat(
                        'bad value in the list: score ',
                        regexp_replace(string(one.score), '[.]0\u0024', ''),
                        ', relevance ',
                        regexp_replace(string(one.relevance), '[.]0\u0024', ''),
                        '; it must be finite, and a gain at most 2^63.'
                      )
                    ),
                    one
                  )
                ),
                one -> named_struct(
                  'score',
                  one.score,
                  'gain',
                  if((one.relevance >= rel), 1.0D, (one.relevance * 0.0D))
                )
              )
            ),
            one -> if(
              isnotnull(array_max(one.gain)),
              aggregate(
                sort_array(
                  transform(
                    element_at(
                      transform(
                        array(
                          array_min(
                            slice(
                              sort_array(
                                transform(one.score, one_1 -> coalesce(one_1, -1.7976931348623157e+308D)),
                                FALSE
                              ),
                              1,
                              coalesce(k, 2147483647)
                            )
                          )
                        ),
                        one_1 -> filter(one, one_2 -> (one_2.score >= one_1))
                      ),
                      1
                    ),
                    one_1 -> named_struct(
                      'score',
                      one_1.score,
                      'gain',
                      (if((ties = 'worst'), -1.0D, 1.0D) * coalesce(one_1.gain, 0.0D))
                    )
                  ),
                  FALSE
                ),
                named_struct(
                  'score',
                  CAST(NULL AS DOUBLE),
                  'rank',
                  0,
                  'n',
                  1,
                  'gain',
                  0.0D,
                  'before',
                  0.0D,
                  'total',
                  0.0D
                ),
                (at, one_1) -> named_struct(
                  'score',
                  one_1.score,
                  'rank',
                  (at.rank + 1),
                  'n',
                  (if(coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE), at.n, 0) + 1),
                  'gain',
                  (
                    if(
                      coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                      at.gain,
                      0.0D
                    ) + (if((ties = 'worst'), -1.0D, 1.0D) * one_1.gain)
                  ),
                  'before',
                  if(
                    coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                    at.before,
                    (at.before + at.gain)
                  ),
                  'total',
                  if(
                    coalesce(((ties = 'expected') AND (at.score = one_1.score)), FALSE),
                    at.total,
                    (
                      at.total + if(
                        (
                          ((at.before = 0.0D) AND (at.gain > 0.0D)) AND ((at.rank - at.n) < coalesce(k, 2147483647))
                        ),
                        aggregate(
                          sequence(0, (least(at.n, (coalesce(k, 2147483647) - (at.rank - at.n))) - 1)),
                          named_struct('none', 1.0D, 'total', 0.0D),
                          (so_far, place) -> named_struct(
                            'none',
                            ((so_far.none * ((at.n - place) - at.gain)) / (at.n - place)),
                            'total',
                            (
                              so_far.total + (
                                ((so_far.none * at.gain) / (at.n - place)) / (((at.rank - at.n) + place) + 1)
                              )
                            )
                          ),
                          so_far -> so_far.total
                        ),
                        0.0D
                      )
                    )
                  )
                ),
                at -> (
                  at.total + if(
                    (
                      ((at.before = 0.0D) AND (at.gain > 0.0D)) AND ((at.rank - at.n) < coalesce(k, 2147483647))
                    ),
                    aggregate(
                      sequence(0, (least(at.n, (coalesce(k, 2147483647) - (at.rank - at.n))) - 1)),
                      named_struct('none', 1.0D, 'total', 0.0D),
                      (so_far, place) -> named_struct(
                        'none',
                        ((so_far.none * ((at.n - place) - at.gain)) / (at.n - place)),
                        'total',
                        (
                          so_far.total + (
                            ((so_far.none * at.gain) / (at.n - place)) / (((at.rank - at.n) + place) + 1)
                          )
                        )
                      ),
                      so_far -> so_far.total
                    ),
                    0.0D
                  )
                )
              ),
              CAST(NULL AS DOUBLE)
            )
          ),
          1
        )
      )
    )
  );
