"""The yard: which real parts, repositories, servers and workspaces are here, and how they are doing."""
