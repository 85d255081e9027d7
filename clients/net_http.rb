# frozen_string_literal: true

# Ruby's Net::HTTP and json.
require "json"
require "net/http"

base, pool, key, keyword = ARGV
query = URI.encode_www_form(ring_pool_key: key, keyword: keyword)
suffix = "#{pool}/allocate_number.json?#{query}"
bulk = URI("#{base}/api/2013-07-01/bulk.json")
json = { "Content-Type" => "application/json" }
rows = ["a/b&c", 7].map { |id| { api_suffix: suffix, request_id: id } }
answer = JSON.parse(Net::HTTP.post(bulk, JSON.generate(requests: rows), json).body)
puts ["bulk", *answer["responses"].flat_map { |row| row.values_at("promo_number", "request_id") }].join(" ")
single = Net::HTTP.get(URI("#{base}/api/2015-12-09/ring_pools/#{suffix}"))
puts "single #{JSON.parse(single)["promo_number"]}"
refused = Net::HTTP.post(bulk, "[]", json)
puts "refused #{refused.code} #{JSON.parse(refused.body).dig("errors", "class")}"
