<?php
// PHP's curl and json_encode, which escapes every slash and all characters outside ASCII.
[, $base, $pool, $key, $keyword] = $argv;
$suffix = "$pool/allocate_number.json?" . http_build_query(['ring_pool_key' => $key, 'keyword' => $keyword]);

function ask(string $url, ?string $body = null): array
{
    $curl = curl_init($url);
    curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
    if ($body !== null) {
        curl_setopt($curl, CURLOPT_POSTFIELDS, $body);
        curl_setopt($curl, CURLOPT_HTTPHEADER, ['Content-Type: application/json']);
    }
    $answer = json_decode(curl_exec($curl), true);
    return [curl_getinfo($curl, CURLINFO_RESPONSE_CODE), $answer];
}

$bulk = "$base/api/2013-07-01/bulk.json";
$rows = array_map(fn ($id) => ['api_suffix' => $suffix, 'request_id' => $id], ['a/b&c', 7]);
[, $answer] = ask($bulk, json_encode(['requests' => $rows]));
$fields = array_map(fn ($row) => "$row[promo_number] $row[request_id]", $answer['responses']);
echo 'bulk ', implode(' ', $fields), "\n";
[, $answer] = ask("$base/api/2015-12-09/ring_pools/$suffix");
echo "single $answer[promo_number]\n";
[$status, $answer] = ask($bulk, '[]');
echo "refused $status {$answer['errors']['class']}\n";
