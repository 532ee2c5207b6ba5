#!/bin/sh
# The compiler through ccache: ccache.sh CCACHE COMPILER ARGUMENTS. ccache takes a precompiled header
# that already stands there for an input of the new one, and no header behind it: another checkout
# with the same old one would get headers of its past. So it must be gone first.
case " $* " in
  *" -x c++-header "*)
    for argument; do
      case $argument in *.gch | *.pch) rm -f "$argument" ;; esac
    done ;;
esac
exec "$@"
