"""Write the functions for SQL into the wheel, when it is built; see [tool.hatch.build.hooks.custom]."""

import sys
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FunctionsForSql(BuildHookInterface):
    def initialize(self, version, build_data):
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, self.root)
        from ndcg_spark.functions.statements import sql

        self.file = Path(tempfile.mkdtemp()) / "functions.sql"
        self.file.write_text(sql(), encoding="utf-8")
        build_data["force_include"][str(self.file)] = "ndcg_spark/functions/functions.sql"
