"""Published tables: protocol files and scripts, run and written up beside the published figures."""
