#!/bin/sh
# Runs toolrag. A secret NAME may be a file, as Docker's are, which NAME_FILE names.
set -eu
for name in PGPASSWORD TOOLRAG_API_KEY TOOLRAG_DATABASE TOOLRAG_EMB_API_KEY; do
  eval "file=\${${name}_FILE:-}"
  if [ -n "$file" ]; then
    value=$(cat "$file")
    export "$name=$value"
  fi
done
exec toolrag "$@"
