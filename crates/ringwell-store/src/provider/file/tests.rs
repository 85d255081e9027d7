use tempfile::TempDir;

use super::*;

struct Files {
    folder: TempDir,
    provider: FileProvider,
}

fn files(offers: &str) -> Files {
    let folder = TempDir::new().unwrap();
    let [offered, bought] = ["offers.csv", "purchases.csv"].map(|name| folder.path().join(name));
    fs::write(&offered, offers).unwrap();
    Files { folder, provider: FileProvider::new(offered, bought) }
}

impl Files {
    fn all(&self) -> Result<Vec<Offer>, ProviderError> {
        let [first, last] = ["2000000000", "9999999999"].map(|it| PromoNumber::parse(it).unwrap());
        self.provider.offers(first..=last, 9)
    }
}

fn offer(number: &str, price_cents: u64) -> Offer {
    Offer { number: PromoNumber::parse(number).unwrap(), price_cents }
}

fn purchase(offer: Offer) -> Purchase {
    Purchase { offer, network: "seven, \"the\" first".to_owned(), at: Millis(7) }
}

#[test]
fn offers_are_sorted_by_price_and_bought_numbers_are_not_offered_again() {
    let files = files("price_cents,number\n150,8885550101\n100,2125550100\n150,8885550100\n");
    let cheap = offer("2125550100", 100);
    let dear = [offer("8885550100", 150), offer("8885550101", 150)];
    assert_eq!(files.all().unwrap(), [cheap, dear[0], dear[1]]);
    let numbers = dear[0].number..=dear[1].number;
    assert_eq!(files.provider.offers(numbers, 1).unwrap(), [dear[0]]);
    files.provider.buy(&[purchase(cheap)]).unwrap();
    assert_eq!(files.all().unwrap(), dear);
    // A new provider for these files returns the same purchase.
    let Files { folder, .. } = files;
    let [offered, bought] = ["offers.csv", "purchases.csv"].map(|name| folder.path().join(name));
    let again = FileProvider::new(offered, bought);
    assert_eq!(again.bought().unwrap(), [purchase(cheap)]);
}

#[test]
fn a_repeated_purchase_buys_nothing_more_and_numbers_without_an_offer_are_not_bought() {
    let files = files("number,price_cents\n2125550100,100\n");
    let bought = purchase(offer("2125550100", 100));
    files.provider.buy(std::slice::from_ref(&bought)).unwrap();
    files.provider.buy(std::slice::from_ref(&bought)).unwrap();
    let cheaper = purchase(offer("8885550100", 1));
    let error = files.provider.buy(&[bought.clone(), cheaper]).unwrap_err();
    assert_eq!(error.0, "there is no offer for 8885550100 with price_cents = 1");
    assert_eq!(files.provider.bought().unwrap(), [bought]);
}

#[test]
fn faults_of_a_file_are_reported_with_line_and_column() {
    let files = files("number,price_cents\n2125550100,100\n1125550100,100\n");
    let message =
        files.all().unwrap_err().0.replace(&files.folder.path().display().to_string(), "");
    assert_eq!(message, "/offers.csv:3: number: \"1125550100\" is invalid");
    fs::write(files.folder.path().join("offers.csv"), "number\n2125550100\n").unwrap();
    let message =
        files.all().unwrap_err().0.replace(&files.folder.path().display().to_string(), "");
    assert_eq!(message, "/offers.csv:2: price_cents: \"\" is invalid");
    fs::remove_file(files.folder.path().join("offers.csv")).unwrap();
    assert!(files.all().unwrap_err().0.contains("offers.csv cannot be read"));
}
