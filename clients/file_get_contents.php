<?php
// PHP without curl, as on old pages: the base URL ends in a slash, empty defaults come first, and
// the query of the single allocation is not escaped, except for characters that would end the
// value.
[, $base, $pool, $key, $keyword] = $argv;

function ask(string $url, ?string $body = null): array
{
    $options = ['ignore_errors' => true];
    if ($body !== null) {
        $options += ['method' => 'POST', 'header' => 'Content-Type: application/json', 'content' => $body];
    }
    $answer = file_get_contents($url, false, stream_context_create(['http' => $options]));
    return [explode(' ', $http_response_header[0])[1], json_decode($answer, true)];
}

$bulk = "$base//api/2013-07-01/bulk.json";
$suffix = "$pool/allocate_number.json?ring_pool_key=$key&keyword=&placement=&keyword=" . urlencode($keyword);
$rows = array_map(fn ($id) => ['request_id' => $id, 'api_suffix' => $suffix], ['a/b&c', 7]);
[, $answer] = ask($bulk, json_encode(['requests' => $rows], JSON_PRETTY_PRINT));
$fields = array_map(fn ($row) => "$row[promo_number] $row[request_id]", $answer['responses']);
echo 'bulk ', implode(' ', $fields), "\n";
$raw = strtr($keyword, ['%' => '%25', '&' => '%26', '+' => '%2B', '#' => '%23']);
[, $answer] = ask("$base//api/2015-12-09/ring_pools/$pool/allocate_number.json?ring_pool_key=$key&keyword=$raw");
echo "single $answer[promo_number]\n";
[$status, $answer] = ask($bulk, '[]');
echo "refused $status {$answer['errors']['class']}\n";
