"""What tools compute, in plain loops: the definitions of the tests."""

from support.tool_definitions import *  # noqa: F403
