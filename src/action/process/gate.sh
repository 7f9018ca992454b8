# The gate before a program. Arguments: folder for the results, bytes of output to keep, program and its arguments.
# Nothing runs before a line has come on standard input; an end of input means that whoever started this is gone.
folder=$1 most=$2
shift 2
read -r _ || exit 125
: >"$folder/released"
exec </dev/null
# Told to end, it passes on what the program does about it.
trap : TERM INT HUP
keep() {
    trap '' TERM INT HUP
    head -c "$most" >"$folder/$1"
    more=$(wc -c)
    [ "$more" -eq 0 ] || echo "$more" >"$folder/$1.cut"
}
mkfifo "$folder/out.pipe" "$folder/err.pipe" || exit 126
keep out <"$folder/out.pipe" &
out=$!
keep err <"$folder/err.pipe" &
err=$!
(exec "$@") >"$folder/out.pipe" 2>"$folder/err.pipe"
echo $? >"$folder/status.new" && mv "$folder/status.new" "$folder/status"
# A signal interrupts waiting, but what was said must still be written down.
while kill -0 "$out" 2>/dev/null || kill -0 "$err" 2>/dev/null; do wait; done
