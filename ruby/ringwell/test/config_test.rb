# frozen_string_literal: true

require "yaml"

# Settings from a file.
class ConfigTest < RingwellTest
  it "a file configures a client" do
    config = Ringwell::Config.read(YAML.safe_load(<<~FILE))
      endpoints: "unix:/run/ringwell.sock"
      deadline: 0.2
      pools:
        42: { key: "k", overflow: 8005550100 }
    FILE
    made = config.client(instrumenter: nil)
    assert_equal [0.2, "8005550100"], [made.deadline, made.overflow(42)]
    assert_equal "#<Ringwell::Client unix:/run/ringwell.sock>", made.inspect
  end

  it "a file sets the address for outcomes, and the snippet of pages" do
    config = Ringwell::Config.read(YAML.safe_load(<<~FILE))
      endpoints: "unix:s"
      management: { url: "http://127.0.0.1:8081", token: "s3cr3t" }
      snippet: { url: "https://calls.example", site: "pk_shop" }
    FILE
    assert_instance_of Ringwell::Calls, config.calls
    assert_equal "pk_shop", config.snippet[:site]
    refute_includes config.inspect, "s3cr3t"
    assert_nil Ringwell::Config.new(endpoints: "unix:s").calls
  end

  {
    {endpoints: "unix:s", management: {url: "http://a"}} => /management needs url and token/,
    {endpoints: "unix:s", snippet: {url: "a", site: "b", sit: 1}} => /snippet needs url and site/,
    {} => /missing keyword: :endpoints/,
    {endpoints: "unix:s", deadlin: 1} => /unknown keyword: :deadlin/,
    {endpoints: "unix:s", pools: {1 => {kee: "k"}}} => /pool 1: unknown keyword: :kee/,
    {endpoints: "unix:s",
      pools: {1 => {overflow: "12"}}} => /overflow of pool 1 must be ten digits, or \+ and a country code/,
    {endpoints: "unix:s", pools: {1 => "k"}} => /Ringwell: undefined method/
  }.each do |settings, message|
    it "settings are refused: #{settings}" do
      error = assert_raises(Ringwell::ConfigError) { Ringwell::Config.read(settings) }
      assert_match message, error.message
    end
  end
end
