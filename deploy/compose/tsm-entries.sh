#!/bin/sh
# Report entries of configfs-tsm for containers that are not root: makes each NAME, and gives what is written to it to their user.
# Run by gput-tsm.service as root, in /sys/kernel/config/tsm/report, at each boot: the kernel forgets entries. Usage: tsm-entries.sh NAME…
set -eu
for name; do
    [ -d "$name" ] || mkdir "$name"
    for attribute in inblob privlevel; do # an AMD guest has both, a TDX guest the first
        [ ! -e "$name/$attribute" ] || chown 10001 "$name/$attribute"
    done
done
register=/sys/class/misc/tdx_guest/measurements/rtmr3:sha384 # TDX, Linux 6.16 or newer
[ ! -e "$register" ] || chown 10001 "$register"
